package redistest

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// Cluster is three primaries that share the keys.
type Cluster struct {
	Nodes []*Server
}

// forEver, in milliseconds, is how long a server may be silent before others take
// it for dead: longer than a test lasts, because a busy machine can make any of
// them silent for a while. A test that loses one says so, and then it is aSecond.
const (
	forEver = "600000"
	aSecond = "1000"
)

// StartCluster starts a cluster of three nodes and waits until each of them
// knows that it is whole.
func StartCluster(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	c := &Cluster{}
	create := []string{"--cluster", "create"}
	for range 3 {
		node := o
		node.Config = append([]string{"cluster-enabled yes", "cluster-node-timeout " + forEver}, o.Config...)
		s := Start(tb, node)
		c.Nodes = append(c.Nodes, s)
		create = append(create, s.Addr)
	}
	cli(tb, append(create, "--cluster-yes")...)
	for _, n := range c.Nodes {
		Await(tb, "the cluster to be whole", func() bool {
			return strings.Contains(n.Do(tb, "CLUSTER", "INFO"), "cluster_state:ok")
		})
	}
	return c
}

// Lose ends one node, and lets the others find out.
func (c *Cluster) Lose(tb testing.TB, lost int) {
	tb.Helper()
	c.Nodes[lost].Kill()
	for i, n := range c.Nodes {
		if i != lost {
			n.Do(tb, "CONFIG", "SET", "cluster-node-timeout", aSecond)
		}
	}
}

// Sentinel is a primary with one replica, and one Sentinel that watches both and
// decides alone.
type Sentinel struct {
	*Server                 // the Sentinel
	Name             string // under which it knows the primary
	Primary, Replica *Server
}

// StartSentinel starts the three and waits until the replica is in step and the
// Sentinel knows it.
func StartSentinel(tb testing.TB) *Sentinel {
	tb.Helper()
	primary := Start(tb, Options{Config: []string{"repl-diskless-sync-delay 0"}})
	host, port, _ := net.SplitHostPort(primary.Addr)
	replica := Start(tb, Options{Config: []string{fmt.Sprintf("replicaof %s %s", host, port)}})
	Await(tb, "the replica to be in step", func() bool {
		return strings.Contains(replica.Do(tb, "INFO", "replication"), "master_link_status:up")
	})
	s := &Sentinel{Server: &Server{}, Name: "weir", Primary: primary, Replica: replica}
	dir := tb.TempDir()
	launch(tb, s.Server, func(sentinelPort int) []string {
		return []string{program(tb, "redis-sentinel"), write(tb, dir, "sentinel.conf", []string{
			"bind 127.0.0.1",
			"dir " + dir,
			fmt.Sprintf("port %d", sentinelPort),
			fmt.Sprintf("sentinel monitor %s %s %s 1", s.Name, host, port),
			fmt.Sprintf("sentinel down-after-milliseconds %s %s", s.Name, forEver),
			fmt.Sprintf("sentinel failover-timeout %s 5000", s.Name), // it tries again after twice as long
		})}
	})
	Await(tb, "the Sentinel to know the replica", func() bool {
		return strings.Contains(s.Do(tb, "SENTINEL", "replicas", s.Name), replica.Addr)
	})
	return s
}

// LosePrimary ends the primary, and lets the Sentinel find out.
func (s *Sentinel) LosePrimary(tb testing.TB) {
	tb.Helper()
	s.Primary.Kill()
	s.Do(tb, "SENTINEL", "SET", s.Name, "down-after-milliseconds", aSecond)
}
