package weir_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

func ExampleLimiter_Take() {
	ctx := context.Background()
	lim := weir.NewLimiter(memstore.New(memstore.Options{}), weir.Options{})
	limit, err := weir.ParseLimit("0.5/s burst 10")
	if err != nil {
		log.Fatal(err)
	}
	d, err := lim.Take(ctx, weir.Op{Limit: limit, Key: weir.NewKey("account", "customer-42"), Cost: 1})
	if err == nil && !d.Allowed {
		log.Print(d.RetryAfter, d.Remaining)
	}
	fmt.Println(d.Allowed, d.Remaining)
	// Output: true 9
}

// A refusal says how long to wait. The eleventh call at one instant waits for
// one token at 0.5 a second.
func ExampleDecision() {
	now := time.Date(2027, 3, 14, 15, 0, 0, 0, time.UTC).UnixNano()
	lim := weir.NewLimiter(memstore.New(memstore.Options{Now: func() int64 { return now }}), weir.Options{})
	limit, err := weir.ParseLimit("0.5/s burst 10")
	if err != nil {
		log.Fatal(err)
	}
	var d weir.Decision
	for range 11 {
		if d, err = lim.Take(context.Background(), weir.Op{Limit: limit, Key: weir.NewKey("account", "customer-42")}); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(d.Allowed, d.Reason, d.Remaining, d.RetryAfter, d.ResetAfter)
	// Output: false limit 0 2s 20s
}

// Several limits are taken together or not at all.
func ExampleLimiter_Take_several() {
	ctx := context.Background()
	lim := weir.NewLimiter(memstore.New(memstore.Options{}), weir.Options{})
	user, _ := weir.ParseLimit("quota 3/hour")
	tenant, _ := weir.ParseLimit("quota 100/hour")
	ops := []weir.Op{
		{Limit: tenant, Key: weir.NewKey("tenant", "acme")},
		{Limit: user, Key: weir.NewKey("tenant", "acme", "user", "7")},
	}
	for range 5 {
		d, err := lim.Take(ctx, ops...)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.Limit, d.Remaining)
	}
	each, err := lim.Peek(ctx, ops[0])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the tenant has", each[0].Remaining)
	// Output:
	// true quota 3/hour 2
	// true quota 3/hour 1
	// true quota 3/hour 0
	// false quota 3/hour 0
	// false quota 3/hour 0
	// the tenant has 97
}

// What a call costs is known only afterwards: reserve an estimate, and settle.
func ExampleReservation_Settle() {
	ctx := context.Background()
	lim := weir.NewLimiter(memstore.New(memstore.Options{}), weir.Options{})
	limit, err := weir.ParseLimit("quota 1000/day")
	if err != nil {
		log.Fatal(err)
	}
	tokens := weir.Op{Limit: limit, Key: weir.NewKey("account", "customer-42"), Cost: 400}
	r, d, err := lim.Reserve(ctx, tokens)
	if err != nil || !d.Allowed {
		log.Fatal(d, err)
	}
	fmt.Println("reserved 400, left", d.Remaining)
	if err := r.Settle(ctx, 120); err != nil {
		log.Fatal(err)
	}
	each, err := lim.Peek(ctx, tokens)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("it took 120, left", each[0].Remaining)
	// Output:
	// reserved 400, left 600
	// it took 120, left 880
}

// A call that failed costs nothing.
func ExampleReservation_Cancel() {
	ctx := context.Background()
	lim := weir.NewLimiter(memstore.New(memstore.Options{}), weir.Options{})
	limit, err := weir.ParseLimit("quota 3/hour")
	if err != nil {
		log.Fatal(err)
	}
	for range 10 {
		r, d, err := lim.Reserve(ctx, weir.Op{Limit: limit, Key: weir.NewKey("account", "customer-42")})
		if err != nil || !d.Allowed {
			log.Fatal(d, err)
		}
		if err := r.Cancel(ctx); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("ten failures, none refused")
	// Output: ten failures, none refused
}

func ExampleNewKey() {
	fmt.Println(weir.NewKey("account", "customer-42"))
	fmt.Println(weir.NewKey("account", "a7", "event", "12"))
	fmt.Println(weir.NewKey("account", "a7|event#12"))
	// Output:
	// account#customer-42
	// account#a7|event#12
	// account#a7%7Cevent%2312
}

func ExampleFromContext() {
	ctx := weir.NewContext(context.Background(), weir.Decision{Allowed: true, Remaining: 4})
	if d, ok := weir.FromContext(ctx); ok {
		fmt.Println(d.Remaining)
	}
	// Output: 4
}
