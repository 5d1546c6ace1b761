package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirlabs/weir/dynamostore"
)

func newStore(c *common) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Make and examine the store itself",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "create",
		Short: "Make the store's table",
		Long: `Make the table of a DynamoDB store: string key pk, on demand, time to live on
expiresAt. A table that is there already is left as it is.
` + fmt.Sprintf(exitHelp, "is not used"),
		Example: "  weir store create --store 'dynamodb:little-stage?region=eu-central-1'",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			u, err := c.storeToManage(cmd)
			if err != nil {
				return err
			}
			if u.scheme == "memory" {
				c.say("weir: memory: needs no creation")
				return nil
			}
			s, err := openDynamo(cmd.Context(), u, nil)
			if err != nil {
				return err
			}
			if err := patiently(cmd.Context(), u, s.Create); err != nil {
				return err
			}
			c.say("weir: table %s is ready", u.name)
			return warnOf(cmd.Context(), c, s)
		},
	}, &cobra.Command{
		Use:   "check",
		Short: "Look whether the store's table can keep limits",
		Long: `Look whether the table of a DynamoDB store can keep limits: its key, its time to
live, its replication.
` + fmt.Sprintf(exitHelp, "the table cannot keep limits well"),
		Example: "  weir store check --store 'dynamodb:little-stage?region=eu-central-1'",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			u, err := c.storeToManage(cmd)
			if err != nil || u.scheme == "memory" {
				return err
			}
			s, err := openDynamo(cmd.Context(), u, nil)
			if err != nil {
				return err
			}
			var warnings []string
			err = patiently(cmd.Context(), u, func(ctx context.Context) (err error) {
				warnings, err = s.Check(ctx)
				return err
			})
			if err != nil {
				return err
			}
			for _, w := range warnings {
				fmt.Fprintln(c.stdout, "warning: "+w)
			}
			if len(warnings) > 0 {
				return errNo{errors.New("the table has faults"), true}
			}
			c.say("weir: table %s is in order", u.name)
			return nil
		},
	})
	return cmd
}

// storeToManage is the store of --store, which commands about a store need.
func (c *common) storeToManage(cmd *cobra.Command) (storeURL, error) {
	if c.store == "" {
		return storeURL{}, usage(cmd.CommandPath()+" --store dynamodb:little-stage", "no store is named")
	}
	return parseStore(c.store)
}

func warnOf(ctx context.Context, c *common, s *dynamostore.Store) error {
	warnings, err := s.Check(ctx)
	for _, w := range warnings {
		c.say("weir: warning: %s", w)
	}
	return err
}
