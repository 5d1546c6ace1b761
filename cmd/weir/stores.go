package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/logging"
	"github.com/redis/rueidis"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/boltstore"
	"github.com/weirlabs/weir/dynamostore"
	"github.com/weirlabs/weir/engine/account"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/redisstore"
)

// This file is the only place that knows all stores: it turns a store's URL
// into a store.

// checkStore says whether a store can be what a policy's `store:` names, and keep
// the policy's limits. It asks nothing of a server or a file: a policy may be
// checked where they are not.
func checkStore(text string, limits []weir.Limit) error {
	u, err := parseStore(text)
	if err != nil {
		return err
	}
	keep := u.maxTTL
	if u.scheme == "dynamodb" {
		if _, err := dynamostore.New(dynamodb.New(dynamodb.Options{}), dynamostore.Options{Table: u.name, Prefix: u.params.Get("prefix"), MaxKeep: keep}); err != nil {
			return err
		}
	}
	m := memstore.New(memstore.Options{MaxKeys: 1})
	return errors.Join(weir.NewLimiter(bounded{m, keep}, weir.Options{}).Check(limits...), m.Close())
}

// slowStart is how long a store may take to answer for the first time.
const slowStart = 5 * time.Second

// opened is a store that has answered.
type opened struct {
	weir.Store
	url      storeURL
	warnings []string
}

// storeOptions are what the URL does not say.
type storeOptions struct {
	observer *weir.Observer // of round trips; may be nil
	log      *slog.Logger   // of what a store loses; nil: nobody hears of it
	existing bool           // what is not there is not made
	looks    bool           // it need not be able to decide: a server that answers will do
}

func (o *storeOptions) lost(what string) func(uint64) {
	if o.log == nil {
		return nil
	}
	return func(total uint64) {
		o.log.Error(what+" is full: callers start over with a full limit", "callers", total)
	}
}

// openStore opens a store and waits, up to [slowStart], until it answers. With
// create=true it makes the table first.
func openStore(ctx context.Context, text string, o storeOptions) (*opened, error) {
	u, err := parseStore(text)
	if err != nil {
		return nil, err
	}
	switch {
	case u.scheme == "memory":
		m := memstore.New(memstore.Options{Lost: o.lost("the memory for counters")})
		if u.maxTTL > 0 {
			return &opened{Store: bounded{m, u.maxTTL}, url: u}, nil
		}
		return &opened{Store: m, url: u}, nil
	case u.scheme == "bolt":
		s, err := openBolt(&u, o)
		if err != nil {
			return nil, err
		}
		return &opened{s, u, s.Warnings()}, nil
	case u.redis():
		return openRedis(ctx, u, o)
	}
	s, err := openDynamo(ctx, u, o)
	if err != nil {
		return nil, err
	}
	d := &opened{Store: s, url: u}
	return d, patiently(ctx, u, func(ctx context.Context) (err error) {
		if u.create && !o.existing {
			if err := s.Create(ctx); err != nil {
				return err
			}
		}
		d.warnings, err = s.Check(ctx)
		return err
	})
}

func openDynamo(ctx context.Context, u storeURL, o storeOptions) (*dynamostore.Store, error) {
	client, err := dynamostore.NewClient(ctx, u.params.Get("region"), u.params.Get("endpoint"), config.WithLogger(sdkLogger(o.log)))
	if err != nil {
		return nil, errHint{errUsage{err}, "--store " + shellWord("dynamodb:"+u.name+"?region=us-east-1")}
	}
	s, err := dynamostore.New(client, dynamostore.Options{
		Table: u.name, Prefix: u.params.Get("prefix"), MaxKeep: u.maxTTL, Observer: o.observer,
	})
	if err != nil {
		return nil, errHint{errUsage{err}, "--store dynamodb:little-stage"}
	}
	return s, nil
}

// sdkLogger writes what AWS's SDK has to say where weir's own log goes, and not
// past it to stderr.
func sdkLogger(log *slog.Logger) logging.Logger {
	if log == nil {
		return logging.Nop{}
	}
	return logging.LoggerFunc(func(kind logging.Classification, format string, v ...any) {
		level := slog.LevelDebug
		if kind == logging.Warn {
			level = slog.LevelWarn
		}
		log.Log(context.Background(), level, "AWS SDK: "+strings.TrimSpace(fmt.Sprintf(format, v...)))
	})
}

func openRedis(ctx context.Context, u storeURL, o storeOptions) (*opened, error) {
	s, err := redisstore.Open(u.text, redisstore.Options{Observer: o.observer})
	if err != nil {
		return nil, wrongRedis(err)
	}
	r := &opened{Store: s, url: u}
	err = patiently(ctx, u, func(ctx context.Context) (err error) {
		if o.looks {
			return answers(ctx, s)
		}
		r.warnings, err = s.Check(ctx)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return r, nil
}

// readsAccounts finds out whether what is said of accounts can be read. Where it can
// not, nobody knows who is banned, and every limit is decided by its on_store_error.
func readsAccounts(ctx context.Context, s weir.Store) error {
	r, ok := s.(weir.Records)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := account.Editor{Records: r}.ReadIndex(ctx)
	if errors.As(err, new(*account.UnreadableError)) {
		return nil // which every call says, and somebody can mend meanwhile
	}
	return err
}

// answers asks a server something, whatever the user may. What a command needs
// beyond that, and may not, it says when it comes to it.
func answers(ctx context.Context, s *redisstore.Store) error {
	_, _, err := s.Get(ctx, "check")
	var redis *rueidis.RedisError
	if errors.As(err, &redis) && strings.HasPrefix(redis.Error(), "NOPERM") {
		return nil
	}
	return err
}

func openBolt(u *storeURL, o storeOptions) (*boltstore.Store, error) {
	if o.existing {
		if err := boltExists(u); err != nil {
			return nil, err
		}
	}
	s, err := boltstore.Open(u.name, boltstore.Options{
		Sync: u.sync, Prefix: u.params.Get("prefix"), MaxKeep: u.maxTTL, Lost: o.lost("the memory for counters of " + u.name),
	})
	if err != nil {
		return nil, boltHint(u, err)
	}
	return s, nil
}

// boltExists refuses a store whose file is not there.
func boltExists(u *storeURL) error {
	if _, err := os.Stat(u.name); errors.Is(err, fs.ErrNotExist) {
		return errHint{fmt.Errorf("there is no store file %s: nothing was counted there yet, or the process that counts runs in another folder: name the file there", u.name), "find / -name " + shellWord(filepath.Base(u.name))}
	} else if err != nil {
		return fmt.Errorf("the store file cannot be read: %w", err)
	}
	return nil
}

// boltHint adds the command to go on with to what a file's store says.
func boltHint(u *storeURL, err error) error {
	var held *boltstore.HeldError
	var damage *boltstore.DamageError
	switch {
	case errors.As(err, &held) && held.PID > 0:
		return errHint{err, fmt.Sprintf("ps -fp %d", held.PID)}
	case errors.As(err, &held) && held.Elsewhere != "":
		return errHint{err, "cat " + shellWord(u.name+".lock")}
	case errors.As(err, &held):
		return errHint{err, "fuser -v " + shellWord(u.name)}
	case errors.As(err, &damage):
		return errHint{err, "weir store check --store " + shellWord("bolt:"+u.name)}
	case errors.Is(err, fs.ErrNotExist):
		if to, err := os.Readlink(u.name); err == nil { // and what it leads to is not there
			return errHint{err, "ls -lL " + shellWord(to)}
		}
		return errHint{err, "mkdir -p " + shellWord(filepath.Dir(u.name))}
	case errors.Is(err, fs.ErrPermission):
		return errHint{err, "ls -ld " + shellWord(filepath.Dir(u.name)) + " " + shellWord(u.name)}
	}
	return err
}

// patiently tries until it works, for as long as a store may need to start. An
// answer that waiting cannot change ends it at once.
func patiently(ctx context.Context, u storeURL, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, slowStart)
	defer cancel()
	var before error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if before != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = before // the try that the time cut off knows less
		}
		before = err
		var missing *types.ResourceNotFoundException
		if errors.As(err, &missing) {
			return errHint{err, "weir store create " + u.flag()}
		}
		if !mayPass(err) {
			return err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.Canceled) {
				return errInterrupted
			}
			err = fmt.Errorf("the store did not answer in %s: %w", slowStart, err)
			if u.redis() {
				return errHint{err, "redis-cli -u " + strings.Replace(u.String(), "+cluster", "", 1) + " ping"}
			}
			return err
		}
	}
}

// mayPass tells errors of a server that is still starting.
func mayPass(err error) bool {
	var network net.Error
	var aws *awshttp.ResponseError
	var redis *rueidis.RedisError
	switch {
	case errors.As(err, &aws) && aws.Response != nil && aws.HTTPStatusCode() != 0:
		return aws.HTTPStatusCode() >= 500
	case errors.As(err, &redis):
		word, _, _ := strings.Cut(redis.Error(), " ")
		switch word {
		case "LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN":
			return true
		}
		return false
	}
	return errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, rueidis.ErrNoSlot)
}

// bounded is a memory store that keeps an item for at most a time: it shows on
// this machine what a store with such a bound will refuse.
type bounded struct {
	*memstore.Store
	keep time.Duration
}

func (b bounded) Caps() weir.Caps {
	c := b.Store.Caps()
	c.MaxKeep = b.keep
	return c
}

// longPeriod is from which period on a limit deserves a store that survives a
// restart.
const longPeriod = time.Hour

// slowBucket is the first bucket that takes so long to fill that a restart gives
// much back.
func slowBucket(limits []weir.Limit) (weir.Limit, bool) {
	i := slices.IndexFunc(limits, func(l weir.Limit) bool { return l.IsBucket() && l.Horizon() >= longPeriod })
	if i < 0 {
		return weir.Limit{}, false
	}
	return limits[i], true
}

// defaultStore is the store of a policy that names none, and the first limit
// for whose long period it is a file.
func defaultStore(limits []weir.Limit) (text string, because weir.Limit) {
	for _, l := range limits {
		if l.Period().Duration() >= longPeriod {
			return "bolt:weir.db", l
		}
	}
	return "memory:", weir.Limit{}
}
