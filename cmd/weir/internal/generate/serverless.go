package generate

// serverless writes a file that deploys the same resources with the Serverless
// Framework.
func serverless(s *stack) []byte {
	y := &yamlWriter{}
	y.comment(0, generatedBy+", beside template.yaml, for the Serverless Framework.")
	y.comment(0, "Deploy: serverless deploy    Remove: serverless remove")
	y.line(0, "service: "+s.name)
	y.line(0, "provider:")
	y.line(1, "name: aws")
	y.line(1, "deploymentMethod: direct")
	var values []any
	for _, p := range s.parameters {
		if p.value == nil {
			values = append(values, object{{"ParameterKey", p.name}, {"ParameterValue", "${env:" + p.name + "}"}})
		}
	}
	if values != nil {
		y.field(1, "stackParameters", values)
	}
	y.line(0, "resources: ${file(template.yaml)}")
	return []byte(y.String())
}
