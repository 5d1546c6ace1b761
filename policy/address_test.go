package policy

import (
	"net/netip"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gaissmai/bart"
	"pgregory.net/rapid"

	"github.com/weirlabs/weir"
)

// usual is how addresses are written where the file says nothing of it.
var usual = &addressing{v6: usualPrefix, nat64: []netip.Prefix{wellKnown}}

func proxies(cidrs ...string) *bart.Lite {
	t := new(bart.Lite)
	for _, c := range cidrs {
		t.Insert(netip.MustParsePrefix(c))
	}
	return t
}

// forwarded is a request of which a peer reports where it came from.
func forwarded(peer string, fields ...string) *Attributes {
	return &Attributes{Peer: netip.MustParseAddr(peer), Header: map[string][]string{"X-Forwarded-For": fields}}
}

func TestClientAddress(t *testing.T) {
	ours := proxies("10.0.0.0/8", "2001:db8:ffff::/48", "127.0.0.1/32")
	for _, c := range []struct {
		name, peer string
		fields     []string
		want       string
	}{
		{"no proxy", "192.0.2.44", nil, "192.0.2.44"},
		{"spoofed by a stranger", "192.0.2.44", []string{"198.51.100.7"}, "192.0.2.44"},
		{"one proxy", "10.0.0.1", []string{"198.51.100.7"}, "198.51.100.7"},
		{"client prepends", "10.0.0.1", []string{"1.1.1.1, 198.51.100.7"}, "198.51.100.7"},
		{"two proxies", "10.0.0.1", []string{"1.1.1.1, 198.51.100.7, 10.0.0.2"}, "198.51.100.7"},
		{"fields are joined", "10.0.0.1", []string{"1.1.1.1", "198.51.100.7, 10.0.0.2"}, "198.51.100.7"},
		{"fields of one entry", "10.0.0.1", []string{"198.51.100.7", "10.0.0.3", "10.0.0.2"}, "198.51.100.7"},
		{"ports", "10.0.0.1", []string{"198.51.100.7:4711"}, "198.51.100.7"},
		{"brackets", "10.0.0.1", []string{"[2001:db8::1]"}, "2001:db8::1"},
		{"brackets and port", "10.0.0.1", []string{"[2001:db8::1]:443"}, "2001:db8::1"},
		{"bare IPv6", "10.0.0.1", []string{"2001:db8::1"}, "2001:db8::1"},
		{"zone", "10.0.0.1", []string{"fe80::1%eth0"}, "fe80::1"},
		{"mapped", "10.0.0.1", []string{"::ffff:198.51.100.7"}, "198.51.100.7"},
		{"mapped peer is the proxy", "::ffff:10.0.0.1", []string{"198.51.100.7"}, "198.51.100.7"},
		{"IPv6 proxy", "2001:db8:ffff::9", []string{"198.51.100.7"}, "198.51.100.7"},
		{"empty header", "10.0.0.1", []string{""}, "10.0.0.1"},
		{"no header", "10.0.0.1", nil, "10.0.0.1"},
		{"unreadable stops", "10.0.0.1", []string{"1.1.1.1, unknown, 10.0.0.2"}, "10.0.0.2"},
		{"unreadable last", "10.0.0.1", []string{"198.51.100.7, _hidden"}, "10.0.0.1"},
		{"empty entry stops", "10.0.0.1", []string{"198.51.100.7,,10.0.0.2"}, "10.0.0.2"},
		{"nothing but ours", "10.0.0.1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"bad port", "10.0.0.1", []string{"198.51.100.7:99999"}, "10.0.0.1"},
		{"octal", "10.0.0.1", []string{"010.0.0.1"}, "10.0.0.1"},
		{"tabs and spaces", "10.0.0.1", []string{" 1.1.1.1 ,\t198.51.100.7 "}, "198.51.100.7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := (&addressing{proxies: ours}).client(forwarded(c.peer, c.fields...)); got.String() != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestProxiesOfOptionsAreTrustedBesideTheFiles(t *testing.T) {
	for _, c := range []struct{ text, peer, want string }{
		{"weir: 1\n", "127.0.0.1", "198.51.100.7"},
		{"weir: 1\n", "::ffff:127.0.0.1", "198.51.100.7"},
		{"weir: 1\n", "127.0.0.2", "127.0.0.2"},
		{"weir: 1\n", "10.0.0.1", "10.0.0.1"},
		{"weir: 1\ntrusted_proxies: [10.0.0.0/8]\n", "127.0.0.1", "198.51.100.7"},
		{"weir: 1\ntrusted_proxies: [10.0.0.0/8]\n", "10.0.0.1", "198.51.100.7"},
		{"weir: 1\ntrusted_proxies:\n  - 10.0.0.0/8\n", "192.0.2.9", "192.0.2.9"},
	} {
		fsys := fstest.MapFS{"weir.yaml": {Data: []byte(c.text)}}
		p, err := Load(fsys, "weir.yaml", Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("::ffff:192.168.0.0/112")}})
		if err != nil {
			t.Fatal(err)
		}
		a := get("GET", "/")
		a.Peer, a.Header = netip.MustParseAddr(c.peer), map[string][]string{"X-Forwarded-For": {"198.51.100.7"}}
		if m, err := p.Match(a); err != nil || m.Client.String() != c.want {
			t.Errorf("%q from %s: the client is %s, want %s; %v", c.text, c.peer, m.Client, c.want, err)
		}
	}
	_, err := Load(fstest.MapFS{"weir.yaml": {Data: []byte("weir: 1\n")}}, "weir.yaml", Options{TrustedProxies: []netip.Prefix{{}}})
	if err == nil || !strings.Contains(err.Error(), "Options.TrustedProxies") {
		t.Errorf("a network that is none: %v", err)
	}
}

func TestCase_B079_OnlyTheChainOfTrustedProxies(t *testing.T) {
	p := load(t, little)
	a := get("POST", "/reservations")
	for _, h := range []string{"X-Forwarded-For", "X-Real-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "Forwarded", "X-Client-Ip"} {
		a.Header[h] = []string{"for=203.0.113.9", "203.0.113.9"}
	}
	if got := ask(t, p, a, Identity{}); !strings.Contains(got, "reservations ip#192.0.2.44") {
		t.Errorf("a stranger's headers choose the key: %s", got)
	}
	a.Peer = netip.MustParseAddr("10.1.1.1")
	delete(a.Header, "X-Forwarded-For")
	if got := ask(t, p, a, Identity{}); !strings.Contains(got, "reservations ip#10.1.1.1") {
		t.Errorf("a header other than X-Forwarded-For chooses the key: %s", got)
	}
}

func TestCase_B080_MappedAddressesStayApart(t *testing.T) {
	seen := map[string]string{}
	for _, s := range []string{"::ffff:192.0.2.1", "::ffff:198.51.100.7", "::1", "127.0.0.1", "::"} {
		id := usual.id(netip.MustParseAddr(s))
		if other := seen[id]; other != "" && !(s == "::" && other == "::1") {
			t.Errorf("%s and %s are both %s", s, other, id)
		}
		seen[id] = s
	}
	if seen["192.0.2.1"] == "" || seen["198.51.100.7"] == "" {
		t.Errorf("mapped addresses are not IPv4: %v", seen)
	}
}

// The whole kind: IPv4 that a translator in front of servers without IPv4 wrote
// as IPv6 is not one subscriber's network either.
func TestCase_B080_TranslatedAddressesStayApart(t *testing.T) {
	for s, want := range map[string]string{
		"64:ff9b::192.0.2.1": "192.0.2.1", "64:ff9b::198.51.100.7": "198.51.100.7", "64:ff9b::1:192.0.2.1": "64:ff9b::",
		"64:ff9b:1::192.0.2.1": "64:ff9b:1::", "64:ff9a::192.0.2.1": "64:ff9a::", "2002:c000:201::1": "2002:c000:201::",
	} {
		if got := usual.id(netip.MustParseAddr(s)); got != want {
			t.Errorf("%s is %s in keys, want %s", s, got, want)
		}
	}
}

func TestAddressKeysAreThoseOfNewKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "address")
		v6, _ := netip.AddrFromSlice(b)
		v4, _ := netip.AddrFromSlice(b[:4])
		for _, a := range []netip.Addr{v6, v6.WithZone("eth0"), v4, netip.AddrFrom16(v4.As16()), {}} {
			if got, want := usual.key(a), weir.NewKey(addressKind, usual.id(a)); got != want {
				t.Errorf("the key of %s is %s, want %s", a, got, want)
			}
		}
	})
}

func TestCase_B082_B083_OneSubscriberOneKey(t *testing.T) {
	p := load(t, little)
	keys := map[string]bool{}
	for i := range 1000 {
		a := get("POST", "/reservations")
		b := netip.MustParseAddr("2001:db8:1:2::").As16()
		b[14], b[15] = byte(i>>8), byte(i)
		if a.Peer = netip.AddrFrom16(b); i%2 == 1 { // by header too
			a.Header["X-Forwarded-For"] = []string{a.Peer.String()}
			a.Peer = netip.MustParseAddr("10.0.0.1")
		}
		keys[ask(t, p, a, Identity{})] = true
	}
	if len(keys) != 1 || !keys["rate-all ip#2001:db8:1:2::; reservations ip#2001:db8:1:2::"] {
		t.Errorf("%d keys: %v", len(keys), keys)
	}
}

func TestCase_B085_B086_PortsAndBracketsAreNoPartOfAKey(t *testing.T) {
	for s, want := range map[string]string{
		"[2001:db8::1]:8080": "2001:db8::", "[::1]:5000": "::", "192.0.2.1:1": "192.0.2.1", "192.0.2.1:65535": "192.0.2.1", "[2001:db8::1]": "2001:db8::",
	} {
		a, ok := parseHop(s)
		if got := usual.id(a); !ok || got != want {
			t.Errorf("%s: %s, want %s", s, got, want)
		}
	}
}

func TestCase_B089_APeerWithoutAnAddress(t *testing.T) {
	p := load(t, little)
	a := get("POST", "/reservations")
	a.Peer = netip.Addr{}
	a.Header["X-Forwarded-For"] = []string{"198.51.100.7"}
	if got, want := ask(t, p, a, Identity{}), "rate-all ip#unknown; reservations ip#unknown"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestExceptIPs(t *testing.T) {
	p := load(t, little)
	for peer, want := range map[string]string{
		"203.0.113.9":        "",
		"::ffff:203.0.113.9": "",
		"203.0.114.1":        "rate-all ip#203.0.114.1; rate-auth ip#203.0.114.1",
	} {
		a := get("POST", "/api/auth/login")
		a.Peer = netip.MustParseAddr(peer)
		if got := ask(t, p, a, Identity{}); got != want {
			t.Errorf("%s: %s, want %s", peer, got, want)
		}
	}
}

func TestAddressKeysAreInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) netip.Addr {
			if rapid.Bool().Draw(t, name+"6") {
				return netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, name)))
			}
			return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, name)))
		}
		a, b := clean(draw("a")), clean(draw("b"))
		same := a == b
		if a.Is6() && b.Is6() {
			p, _ := a.Prefix(64)
			same = p.Contains(b)
		}
		if (usual.key(a) == usual.key(b)) != same {
			t.Fatalf("%s is %s, %s is %s", a, usual.key(a), b, usual.key(b))
		}
	})
}

func FuzzForwarded(f *testing.F) {
	for _, s := range []string{"1.1.1.1", "a, b", "[::1]:80, 10.0.0.1", ",,", "1.1.1.1:1:1", "[", "::%", "10.0.0.1,\x00"} {
		f.Add(s)
	}
	ours := proxies("10.0.0.0/8")
	f.Fuzz(func(t *testing.T, s string) {
		// The last entry that is not ours, or a hop of ours: never what stands
		// to the left of an address that is not ours.
		got := (&addressing{proxies: ours}).client(forwarded("10.0.0.1", "6.6.6.6, 7.7.7.7,"+s))
		if !got.IsValid() || got.String() == "6.6.6.6" {
			t.Fatalf("%q: %v", s, got)
		}
	})
}

func TestClientIPPresets(t *testing.T) {
	const private, public, edge = "10.0.3.7", "203.0.113.80", "104.16.1.1"
	for _, c := range []struct {
		name, text, peer, fields, want string
	}{
		{"alb", "{from: alb}", private, "6.6.6.6, 198.51.100.7", "198.51.100.7"},
		{"alb: a caller within the network", "{from: alb}", private, "6.6.6.6, 10.9.9.9", "10.9.9.9"},
		{"alb: a stranger", "{from: alb}", public, "198.51.100.7", public},
		{"alb: nothing reported", "{from: alb}", private, "", private},
		{"apigateway", "{from: apigateway}", "172.31.0.9", "6.6.6.6,198.51.100.7", "198.51.100.7"},
		{"cloudfront", "{from: cloudfront}", private, "6.6.6.6, 198.51.100.7, 130.176.1.1", "198.51.100.7"},
		{"cloudfront passed by", "{from: cloudfront}", private, "198.51.100.7", "198.51.100.7"},
		{"cloudfront: an entry that cannot be read", "{from: cloudfront}", private, "6.6.6.6, x, 130.176.1.1", "130.176.1.1"},
		{"cloudflare", "{from: cloudflare}", edge, "6.6.6.6, 198.51.100.7", "198.51.100.7"},
		{"cloudflare over IPv6", "{from: cloudflare}", "2606:4700::5", "198.51.100.7", "198.51.100.7"},
		{"cloudflare: a stranger", "{from: cloudflare}", public, "198.51.100.7", public},
		{"cloudflare: a caller that runs there", "{from: cloudflare}", edge, "6.6.6.6, 2a06:98c0:3600::103", "2a06:98c0:3600::103"},
		{"socket", "{from: socket}", private, "198.51.100.7", private},
		{"hops", "{hops: 3}\ntrusted_proxies: [203.0.113.0/24]", public, "6.6.6.6, 198.51.100.7, 10.0.0.1, 10.0.0.2", "198.51.100.7"},
		{"more hops than entries", "{hops: 3}\ntrusted_proxies: [203.0.113.0/24]", public, "198.51.100.7, 10.0.0.2", "198.51.100.7"},
		{"hops: a stranger", "{hops: 3}\ntrusted_proxies: [203.0.113.0/24]", private, "6.6.6.6, 198.51.100.7, 10.0.0.1", private},
	} {
		p := load(t, "weir: 1\nclient_ip: "+c.text+"\n")
		a := get("GET", "/")
		a.Peer = netip.MustParseAddr(c.peer)
		if c.fields != "" {
			a.Header["X-Forwarded-For"] = strings.Split(c.fields, ",")
		}
		if m, err := p.Match(a); err != nil || m.Client.String() != c.want {
			t.Errorf("%s: the client is %s, want %s (%v)", c.name, m.Client, c.want, err)
		}
	}
}

func TestCase_B082_IPv6ByTheSetPrefix(t *testing.T) {
	for text, want := range map[string]string{
		"{ipv6_prefix: 56}":                        "2001:db8:1:200::",
		"{ipv6_prefix: 64}":                        "2001:db8:1:2ff::",
		"{ipv6_prefix: 128}":                       "2001:db8:1:2ff::7",
		"{nat64: 2001:db8:1:2ff::/96}":             "0.0.0.7",
		"{from: alb, nat64: [\"64:ff9b:1::/96\"]}": "2001:db8:1:2ff::",
	} {
		p := load(t, "weir: 1\nclient_ip: "+text+"\nedge: [{name: a, by: ip, limit: 1/s}]\n")
		a := get("GET", "/")
		a.Peer = netip.MustParseAddr("2001:db8:1:2ff::7")
		if got := ask(t, p, a, Identity{}); got != "a ip#"+want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// Addresses that share a place in what is remembered take it in turns, and each
// has its own key all the same.
func TestRecentKeysAreExact(t *testing.T) {
	d := &addressing{v6: usualPrefix, nat64: []netip.Prefix{wellKnown}}
	for range 2 {
		for i := range 4096 { // more than there are places
			v4 := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
			for _, a := range []netip.Addr{v4, netip.AddrFrom16(v4.As16()), v4.Next()} {
				if got, want := d.key(a), weir.NewKey(addressKind, d.id(a)); got != want {
					t.Fatalf("the key of %s is %s, want %s", a, got, want)
				}
			}
		}
	}
}
