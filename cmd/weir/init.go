package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

//go:embed init.yaml
var firstPolicy []byte

// maxNotes is how many notes on a document are shown beside the policy.
const maxNotes = 20

func newInit(c *common) *cobra.Command {
	var from string
	var force bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a first policy, with comments",
		Long: `Write a policy to begin with: to the file of -c, which must not be there yet. With
--from its operations are those of an OpenAPI document (2.0 and 3), in YAML or JSON;
what the policy cannot have as the document says it is named, with the reason.
` + fmt.Sprintf(exitHelp, "the file exists"),
		Example: "  weir init\n  weir init --from openapi.yaml -c limits.yaml\n  weir init --force",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			if from == "" {
				return writeFirst(c, firstPolicy, force)
			}
			text, notes, err := policyFromOpenAPI(from)
			if err != nil {
				return err
			}
			if err := writeFirst(c, text, force); err != nil {
				return err
			}
			for i, n := range notes {
				if i == maxNotes {
					c.say("weir: note: and %d more, which stand at the end of the policy", len(notes)-i)
					break
				}
				c.say("weir: note: %s: %s", strings.Map(oneLine, n.What), strings.Map(oneLine, n.Why))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "take the operations of this OpenAPI `FILE`")
	cmd.Flags().BoolVar(&force, "force", false, "write over a file that exists")
	return cmd
}

func writeFirst(c *common, text []byte, force bool) error {
	if c.out != "" { // opened already: whoever names a file with -o wants it written
		_, err := c.stdout.Write(text)
		return err
	}
	mode := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if force {
		mode = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(c.config, mode, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return errHint{errNo{fmt.Errorf("%s exists already", c.config), false}, "weir init --force -c " + shellWord(c.config)}
	}
	if err != nil {
		return fmt.Errorf("the policy cannot be written: %w", err)
	}
	if _, err = f.Write(text); err != nil {
		f.Close()
		return fmt.Errorf("the policy is not complete: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("the policy is not complete: %w", err)
	}
	c.say("weir: wrote %s; look at it with: weir check -c %s", c.config, c.config)
	c.say("weir: for your editor: weir schema -o weir.schema.json")
	return nil
}
