package redisstore

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Open makes a Store from a URL, with a client of its own that Close closes. It
// connects when it is first needed, and again after a failure, so that a program
// may start before its server.
//
//	redis://[USER:PASSWORD@]HOST[:PORT][/DB]   one server; rediss:// with TLS
//	redis+cluster://[USER:PASSWORD@]HOST[:PORT]  a cluster; rediss+cluster:// with TLS
//
// The port is 6379 when it is not given. Parameters, of which any other is an
// error: addr=HOST:PORT, another address of the cluster or another Sentinel, as
// often as needed; master_set=NAME, the name under which Sentinel, at the
// addresses, knows the primary (a Sentinel that wants a user and a password gets
// those of the URL); prefix=TEXT and max_ttl=DURATION, in place of
// Options.Prefix and Options.MaxKeep; resend=true and one_by_one=true, as
// in Options; and with TLS ca=FILE, an authority for the server's certificate in place of the
// system's, and cert=FILE with key=FILE, the client's own certificate. Errors
// show neither the user nor the password, nor what an unknown parameter holds.
func Open(rawURL string, o Options) (*Store, error) {
	client, err := parseURL(rawURL, &o)
	if err != nil {
		return nil, err
	}
	s, err := newStore(o)
	if err != nil {
		return nil, err
	}
	c := newConnector(*client)
	s.client, s.connected, s.close = c.get, c.have, c.close
	s.where = "redis " + client.InitAddress[0]
	return s, nil
}

const (
	defaultPort = "6379"
	dialTimeout = 2 * time.Second
	// A Sentinel's message that the primary has changed can be missed.
	sentinelRefresh = 5 * time.Second
	maxRedirections = 5
)

var errUnreadable = errors.New("redisstore: the URL can't be read; write it like redis://USER:PASSWORD@HOST:6379, and %XX for what is special in a password")

// parseURL turns a URL into the options of a client, and those of the store.
func parseURL(rawURL string, o *Options) (*rueidis.ClientOption, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Fragment != "" || strings.Contains(u.Path, "@") || atOutOfPlace(u.RawQuery) {
		// Half of a password may be taken for any part of the URL.
		return nil, errUnreadable
	}
	c := &rueidis.ClientOption{
		Dialer:       net.Dialer{Timeout: dialTimeout},
		DisableCache: true,
	}
	fail := func(format string, args ...any) (*rueidis.ClientOption, error) {
		return nil, fmt.Errorf("redisstore: %s://%s: %w", u.Scheme, u.Host, fmt.Errorf(format, args...))
	}
	scheme, cluster := strings.CutSuffix(u.Scheme, "+cluster")
	if scheme != "redis" && scheme != "rediss" {
		return fail("the scheme must be redis, rediss, redis+cluster or rediss+cluster")
	}
	if u.Hostname() == "" {
		return fail("there is no host")
	}
	c.ForceSingleClient = !cluster
	c.ClusterOption.MaxMovedRedirections = maxRedirections
	c.InitAddress = []string{address(u.Host)}
	c.Username = u.User.Username()
	c.Password, _ = u.User.Password()
	if db := strings.Trim(u.Path, "/"); db != "" {
		if c.SelectDB, err = strconv.Atoi(db); err != nil || c.SelectDB < 0 {
			return fail("database %q is not a number", db)
		}
		if cluster {
			return fail("a cluster has no databases; leave out /%s, and use prefix= to keep programs apart", db)
		}
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return fail("the parameters can't be read; write %%XX for what is special in them")
	}
	var ca, cert, key string
	for name, values := range query {
		if name != "addr" && len(values) > 1 {
			return fail("parameter %s is given twice", name)
		}
		value := values[0]
		if value == "" && name != "prefix" {
			return fail("parameter %s is empty", name)
		}
		switch name {
		case "addr":
			for _, addr := range values {
				if strings.Contains(addr, "@") {
					return fail("addr is HOST:PORT; the user and the password before the first host are those of all")
				}
				c.InitAddress = append(c.InitAddress, address(addr))
			}
		case "master_set":
			c.Sentinel.MasterSet = value
		case "prefix":
			o.Prefix = value
		case "max_ttl":
			if o.MaxKeep, err = time.ParseDuration(value); err != nil || o.MaxKeep <= 0 {
				return fail("max_ttl=%s is not a time such as 24h", value)
			}
		case "one_by_one":
			if o.OneByOne, err = strconv.ParseBool(value); err != nil {
				return fail("one_by_one=%s is neither true nor false", value)
			}
		case "resend":
			if o.Resend, err = strconv.ParseBool(value); err != nil {
				return fail("resend=%s is neither true nor false", value)
			}
		case "ca":
			ca = value
		case "cert":
			cert = value
		case "key":
			key = value
		default:
			if strings.Contains(u.RawQuery, "@") {
				return nil, errUnreadable // the parameter may be half of a password
			}
			return fail("unknown parameter %s; there are addr, ca, cert, key, master_set, max_ttl, one_by_one, prefix and resend, and a user and a password stand before the host, %s://USER:PASSWORD@HOST", name, u.Scheme)
		}
	}
	sentinel := c.Sentinel.MasterSet != ""
	switch {
	case sentinel && cluster:
		return fail("master_set is for Sentinel, which a cluster does without; leave it out, or use redis://")
	case len(c.InitAddress) > 1 && !sentinel && !cluster:
		return fail("addr is for a cluster or Sentinels; use redis+cluster://, or add master_set=NAME")
	case scheme == "redis" && (ca != "" || cert != "" || key != ""):
		return fail("ca, cert and key are for TLS; use rediss://")
	}
	if scheme == "rediss" {
		if c.TLSConfig, err = tlsConfig(ca, cert, key); err != nil {
			return fail("%w", err)
		}
		c.Sentinel.TLSConfig = c.TLSConfig
	}
	c.Sentinel.Dialer = c.Dialer
	if sentinel {
		c.Sentinel.TopologyRefreshInterval = sentinelRefresh
	}
	return c, nil
}

// atOutOfPlace reports whether parameters hold an @ where none belongs: they may be what
// follows a ? in a password.
func atOutOfPlace(params string) bool {
	query, err := url.ParseQuery(params)
	if err != nil {
		return strings.Contains(params, "@")
	}
	for name, values := range query {
		switch name {
		case "addr", "ca", "cert", "key", "prefix":
		default:
			if strings.Contains(name+strings.Join(values, ""), "@") {
				return true
			}
		}
	}
	return false
}

// address adds the port that everybody leaves out.
func address(host string) string {
	if name, port, err := net.SplitHostPort(host); err == nil {
		return net.JoinHostPort(name, cmp.Or(port, defaultPort))
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), defaultPort)
}

func tlsConfig(ca, cert, key string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca: %s holds no certificate in PEM", ca)
		}
	}
	if (cert == "") != (key == "") {
		return nil, errors.New("cert and key belong together; one of them is missing")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("cert and key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
