// Command weir keeps per-customer rate limits and quotas from one policy file.
//
//	weir demo                                    a ticket shop behind weir, to see it work
//	weir proxy --to http://localhost:3000        enforce weir.yaml in front of a service
//	weir check                                   find mistakes in weir.yaml
//	weir probe http://localhost:8080/reservations -X POST
//	weir keys top                                who is over a limit, or nearest to one
//	weir cost --rps 3                            what the policy costs on AWS in a month
//	weir report --from decisions=FILE            what each layer stopped, and what that cost
//	weir usage --account customer-42             what an account has used of its limits
//	weir why 3k2v9q8r1m0aa                       why somebody was refused, by the id in the refusal
//	weir accounts set customer-42 --plan pro     plans, versions and bans of single accounts
//	weir generate cloudformation -o aws          the policy as infrastructure for AWS
//	weir drift --from waf=acl.json               what is live on AWS against the policy
//	weir store check                             is the store, or its file, in order
//
// Data goes to stdout, everything else to stderr. The exit codes of every
// command are: 0 done, or no objection; 1 the answer is no; 2 a usage error, or
// a policy that does not load; 3 a store, server or file could not be reached
// or was lost; 130 interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine/account"
	"github.com/weirlabs/weir/policy"
)

func main() { os.Exit(mainCode()) }

func mainCode() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends at once
	return run(ctx, os.Args[1:], os.Stdout, os.Stderr)
}

// The exit codes, which are part of the program's interface.
const (
	exitDone        = 0
	exitNo          = 1
	exitUsage       = 2
	exitLost        = 3
	exitInterrupted = 130
)

// run executes one command line and says how it ended.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd, err := newRoot(stdout, stderr, args).ExecuteContextC(ctx)
	code := exitCode(ctx, err)
	if err == nil || code == exitInterrupted {
		return code
	}
	var silent errNo
	if errors.As(err, &silent) && silent.said {
		return code
	}
	var problems policy.Problems
	if errors.As(err, &problems) {
		fmt.Fprintln(stderr, problems.Error())
	} else {
		fmt.Fprintln(stderr, "weir: "+strings.TrimPrefix(err.Error(), "weir: "))
	}
	var hint errHint
	var record *account.UnreadableError
	if !errors.As(err, &hint) && errors.As(err, &record) {
		if key, ok := weir.ParseKey(record.Of); ok {
			hint.try = unreadableOf(key, record).try
		}
	}
	if hint.try != "" {
		fmt.Fprintln(stderr, "try: "+typable(cmd, hint.try))
	}
	return code
}

// exitCode is the one place where errors become exit codes.
func exitCode(ctx context.Context, err error) int {
	var (
		no       errNo
		usage    errUsage
		problems policy.Problems
	)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errInterrupted), ctx.Err() != nil && errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &no):
		return exitNo
	case errors.As(err, &usage), errors.As(err, &problems):
		return exitUsage
	default:
		return exitLost
	}
}
