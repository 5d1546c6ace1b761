package httpretry_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/weirlabs/weir/httpretry"
)

// One client for one service. It waits for as long as a refusal asks, up to 30 s.
func ExampleNew() {
	client := &http.Client{
		Transport: httpretry.New(httpretry.Options{}),
		Timeout:   45 * time.Second, // for all attempts and waits together
	}
	resp, err := client.Post("https://shop.example/reservations", "application/json", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusTooManyRequests {
		fmt.Println("not now, and not within the time-out either")
	}
}

// A wait that is too long for the caller is not begun.
func ExampleOptions() {
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer shop.Close()

	client := &http.Client{Transport: httpretry.New(httpretry.Options{
		Base:    shop.Client().Transport,
		MaxWait: 5 * time.Second,
	})}
	resp, err := client.Get(shop.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, resp.Header.Get("Retry-After"))
	// Output: 429 3600
}
