package generate

// tfType is what a type of CloudFormation is in Terraform.
type tfType struct {
	name       string            // of the resource; "" for a part of another one
	id         string            // the attribute that a reference means
	attributes map[string]string // by the names of GetAtt
	named      string            // the attribute for a name, where one is needed
}

var arn = map[string]string{"Arn": "arn"}

var tfTypes = map[string]tfType{
	"AWS::WAFv2::IPSet":                {name: "aws_wafv2_ip_set", attributes: arn, named: "name"},
	"AWS::WAFv2::WebACL":               {name: "aws_wafv2_web_acl", attributes: arn, named: "name"},
	"AWS::WAFv2::WebACLAssociation":    {name: "aws_wafv2_web_acl_association"},
	"AWS::WAFv2::LoggingConfiguration": {name: "aws_wafv2_web_acl_logging_configuration"},

	"AWS::ApiGateway::RestApi":         {name: "aws_api_gateway_rest_api", id: "id", attributes: map[string]string{"RootResourceId": "root_resource_id"}},
	"AWS::ApiGateway::Resource":        {name: "aws_api_gateway_resource", id: "id"},
	"AWS::ApiGateway::Method":          {name: "aws_api_gateway_method", id: "id"},
	"AWS::ApiGateway::GatewayResponse": {name: "aws_api_gateway_gateway_response", id: "id"},
	"AWS::ApiGateway::Deployment":      {name: "aws_api_gateway_deployment", id: "id"},
	"AWS::ApiGateway::Stage":           {name: "aws_api_gateway_stage", id: "stage_name"},
	"AWS::ApiGateway::UsagePlan":       {name: "aws_api_gateway_usage_plan", id: "id"},
	"AWS::ApiGateway::ApiKey":          {name: "aws_api_gateway_api_key", id: "id"},
	"AWS::ApiGateway::UsagePlanKey":    {name: "aws_api_gateway_usage_plan_key", id: "id"},

	"AWS::ApiGatewayV2::Api":         {name: "aws_apigatewayv2_api", id: "id", attributes: map[string]string{"ApiEndpoint": "api_endpoint"}},
	"AWS::ApiGatewayV2::Stage":       {name: "aws_apigatewayv2_stage", id: "id"},
	"AWS::ApiGatewayV2::Integration": {name: "aws_apigatewayv2_integration", id: "id"},
	"AWS::ApiGatewayV2::Authorizer":  {name: "aws_apigatewayv2_authorizer", id: "id"},
	"AWS::ApiGatewayV2::Route":       {name: "aws_apigatewayv2_route", id: "id"},

	"AWS::AppSync::GraphQLApi":    {name: "aws_appsync_graphql_api", attributes: map[string]string{"Arn": "arn", "ApiId": "id", "GraphQLUrl": `uris["GRAPHQL"]`}},
	"AWS::AppSync::GraphQLSchema": {},
	"AWS::AppSync::DataSource":    {name: "aws_appsync_datasource", attributes: map[string]string{"Name": "name"}},
	"AWS::AppSync::Resolver":      {name: "aws_appsync_resolver"},

	"AWS::DynamoDB::Table":       {name: "aws_dynamodb_table", id: "name", attributes: arn, named: "name"},
	"AWS::Logs::LogGroup":        {name: "aws_cloudwatch_log_group", id: "name", attributes: arn, named: "name"},
	"AWS::IAM::Role":             {name: "aws_iam_role", id: "name", attributes: map[string]string{"Arn": "arn", "Id": "id"}},
	"AWS::Lambda::Function":      {name: "aws_lambda_function", id: "function_name", attributes: arn, named: "function_name"},
	"AWS::Lambda::Permission":    {name: "aws_lambda_permission"},
	"AWS::CloudWatch::Dashboard": {name: "aws_cloudwatch_dashboard", named: "dashboard_name"},
	"AWS::CloudWatch::Alarm":     {name: "aws_cloudwatch_metric_alarm", named: "alarm_name"},
}

// tfNames says how properties are written, by type and then by name, or by the
// name of what they stand in and their own; those that are not here have their own
// name with underscores. The type "" is for all.
//
//	name       an attribute, a block, or a block for each of a list
//	=name      an attribute, also where it is an object
//	json name  an attribute that holds JSON
//	key:name   a block for each field of an object, which is named by the attribute key
//	^          the properties within are written in its place
//	-          it is not written here
var tfNames = map[string]map[string]string{
	"": {"CloudWatchMetricsEnabled": "cloudwatch_metrics_enabled", "TimeoutInMillis": "timeout_milliseconds"},
	"AWS::WAFv2::WebACL": {
		"CustomResponseBodies": "key:custom_response_body", "Rules": "rule", "ResponseHeaders": "response_header",
		"Statements": "statement", "TextTransformations": "text_transformation",
	},
	"AWS::WAFv2::LoggingConfiguration": {"Filters": "filter", "Conditions": "condition"},
	"AWS::ApiGateway::RestApi":         {"ApiKeySourceType": "api_key_source"},
	"AWS::ApiGateway::Method":          {"AuthorizationType": "authorization", "Integration": "-"},
	"AWS::ApiGateway::GatewayResponse": {"ResponseParameters": "=response_parameters", "ResponseTemplates": "=response_templates"},
	"AWS::ApiGateway::Stage":           {"TracingEnabled": "xray_tracing_enabled", "MethodSettings": "-", "AccessLogSetting": "access_log_settings"},
	"AWS::ApiGateway::UsagePlan":       {"UsagePlanName": "name", "Throttle": "throttle_settings", "Quota": "quota_settings"},
	"AWS::ApiGatewayV2::Stage":         {"StageName": "name", "RouteSettings": "route_key:route_settings"},
	"AWS::ApiGatewayV2::Authorizer":    {"IdentitySource": "identity_sources"},
	"AWS::AppSync::GraphQLApi":         {"OpenIDConnectConfig": "openid_connect_config"},
	"AWS::AppSync::DataSource":         {"LambdaFunctionArn": "function_arn"},
	"AWS::AppSync::Resolver":           {"TypeName": "type", "FieldName": "field", "DataSourceName": "data_source"},
	"AWS::DynamoDB::Table": {
		"AttributeDefinitions": "attribute", "AttributeDefinitions.AttributeName": "name", "AttributeType": "type", "KeySchema": "-",
		"TimeToLiveSpecification": "ttl", "SSESpecification": "server_side_encryption", "SSEEnabled": "enabled",
	},
	"AWS::Logs::LogGroup":        {"LogGroupName": "name"},
	"AWS::IAM::Role":             {"AssumeRolePolicyDocument": "json assume_role_policy", "Policies": "-"},
	"AWS::Lambda::Function":      {"Code": "^", "Variables": "=variables"},
	"AWS::CloudWatch::Alarm":     {"Dimensions": "-", "Metrics": "-"},
	"AWS::CloudWatch::Dashboard": {},
}
