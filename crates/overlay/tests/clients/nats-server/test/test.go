// Package test starts servers for the tests of nats.go.
package test

import "github.com/nats-io/nats-server/v2/server"

// DefaultTestOptions are copied by tests.
var DefaultTestOptions = server.Options{Host: "127.0.0.1", Port: 4222}

// RunServer starts a server and waits until it accepts connections.
func RunServer(options *server.Options) *server.Server {
	started := *options
	s := server.Start(&started, "")
	options.Port, options.Cluster.Port = started.Port, started.Cluster.Port
	return s
}

// RunServerWithConfig starts a server of a configuration file.
func RunServerWithConfig(file string) (*server.Server, *server.Options) {
	options := server.Read(file)
	return server.Start(options, file), options
}
