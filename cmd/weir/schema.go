package main

import (
	"github.com/spf13/cobra"

	"github.com/weirlabs/weir/policy"
)

func newSchema(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of a policy, for editors",
		Long: `Print the JSON Schema (draft 2020-12) of a policy file. An editor that knows YAML
then completes fields and marks mistakes while you type; weir check finds the rest.
`,
		Example: `  weir schema -o weir.schema.json
  # and as the first line of weir.yaml:
  # yaml-language-server: $schema=weir.schema.json`,
		Annotations: map[string]string{formatsKey: "json"},
		Args:        noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := c.stdout.Write(policy.Schema())
			return err
		},
	}
}
