// Package server stands for that of nats-server in the tests of nats.go.
//
// Instead of a server inside the test's process it starts one beside it: a site, by the command that TOLLWAY names, or
// nats-server. A test that needs more than a site and a configuration file can ask for panics here.
package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Server is a process.
type Server struct {
	options *Options
	// The configuration file of the test; none if it gave options.
	file    string
	folder  string
	process *exec.Cmd
	log     bytes.Buffer
	monitor int
}

// Start starts a process and waits until it accepts connections.
func Start(options *Options, file string) *Server {
	folder, err := os.MkdirTemp("", "server")
	if err != nil {
		panic(err)
	}
	s := &Server{options: options, file: file, folder: folder, monitor: free()}
	if options.Port == -1 {
		options.Port = free()
	}
	if options.Cluster.Port == -1 {
		options.Cluster.Port = free()
	}
	s.write()
	if site := os.Getenv("TOLLWAY"); site != "" {
		s.process = exec.Command(site, "overlay", "--config", s.path(), "--socket", s.path()+".sock")
	} else {
		s.process = exec.Command("nats-server", "-c", s.path(), "-m", strconv.Itoa(s.monitor))
	}
	s.process.Stderr, s.process.Stdout = &s.log, &s.log
	if err := s.process.Start(); err != nil {
		panic(err)
	}
	for range 1000 {
		if connection, err := net.Dial("tcp", s.address()); err == nil {
			connection.Close()
			// Links stand later. A route may lead to a server that starts later.
			for attempt := 0; len(options.Routes) > 0 && s.NumRoutes() == 0 && attempt < 20; attempt++ {
				time.Sleep(50 * time.Millisecond)
			}
			return s
		}
		time.Sleep(10 * time.Millisecond)
	}
	panic("no server: " + s.log.String())
}

// The file that the process reads.
func (s *Server) path() string { return filepath.Join(s.folder, "file") }

func (s *Server) write() {
	var text []byte
	if os.Getenv("TOLLWAY") != "" {
		if what := s.options.refused(); what != "" {
			panic("a site has no such thing: " + what)
		}
		text = []byte(s.options.site())
	} else if s.file != "" {
		// The port must stay when the file is read again.
		read, err := os.ReadFile(s.file)
		if err != nil {
			panic(err)
		}
		text = bytes.ReplaceAll(read, []byte("127.0.0.1:-1"), []byte(s.address()))
		here, _ := os.Getwd()
		text = bytes.ReplaceAll(text, []byte(`"./configs`), []byte(`"`+here+"/configs"))
	} else {
		text, _ = json.Marshal(s.options.nats())
	}
	// A reader must not see half of a file.
	if err := os.WriteFile(s.path()+".new", text, 0600); err != nil {
		panic(err)
	}
	if err := os.Rename(s.path()+".new", s.path()); err != nil {
		panic(err)
	}
}

func (s *Server) address() string {
	return net.JoinHostPort(s.options.Host, strconv.Itoa(s.options.Port))
}

// Shutdown ends the process, and waits for its end.
func (s *Server) Shutdown() {
	if s == nil || s.process.ProcessState != nil {
		return
	}
	s.process.Process.Signal(syscall.SIGTERM)
	s.process.Wait()
	os.RemoveAll(s.folder)
}

// WaitForShutdown has nothing left to wait for.
func (s *Server) WaitForShutdown() {}

// ClientURL is the address for clients.
func (s *Server) ClientURL() string {
	scheme := "nats"
	if s.options.TLSConfig != nil {
		scheme = "tls"
	}
	return fmt.Sprintf("%s://%s", scheme, s.address())
}

// Addr is the address for clients.
func (s *Server) Addr() net.Addr {
	address, _ := net.ResolveTCPAddr("tcp", s.address())
	return address
}

// ClusterAddr is the address for other servers.
func (s *Server) ClusterAddr() *net.TCPAddr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: s.options.Cluster.Port}
}

// InProcessConn is a connection to the process.
func (s *Server) InProcessConn() (net.Conn, error) { return net.Dial("tcp", s.address()) }

// NumClients is the number of connected clients.
func (s *Server) NumClients() int { return s.status("clients", "connections") }

// NumRoutes is the number of connected servers.
func (s *Server) NumRoutes() int { return s.status("reachable", "routes") }

// A value of the status: of a site by its name there, of nats-server by its own.
func (s *Server) status(site, nats string) int {
	status := map[string]any{}
	if command := os.Getenv("TOLLWAY"); command != "" {
		ask := exec.Command(command, "overlay", "status", "--json", "--socket", s.path()+".sock")
		text, err := ask.Output()
		if err != nil {
			panic(err)
		}
		json.Unmarshal(text, &status)
		return int(status[site].(float64))
	}
	answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/varz", s.monitor))
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	json.NewDecoder(answer.Body).Decode(&status)
	return int(status[nats].(float64))
}

// Reload makes the process read its file again.
func (s *Server) Reload() error {
	host, port := s.options.Host, s.options.Port
	s.options = Read(s.file)
	s.options.Host, s.options.Port = host, port
	s.write()
	if os.Getenv("TOLLWAY") == "" {
		return s.process.Process.Signal(syscall.SIGHUP)
	}
	return nil
}

// ReloadOptions puts other options in force.
func (s *Server) ReloadOptions(options *Options) error {
	s.options = options
	s.write()
	if os.Getenv("TOLLWAY") == "" {
		return s.process.Process.Signal(syscall.SIGHUP)
	}
	return nil
}

// EnableJetStream cannot be had beside a process.
func (s *Server) EnableJetStream(any) error { return errors.ErrUnsupported }

// Account is one of nats-server's.
type Account struct{ Name string }

// LookupAccount cannot be had from another process.
func (s *Server) LookupAccount(string) (*Account, error) { return nil, errors.ErrUnsupported }

// UpdateAccountClaims cannot be had from another process.
func (s *Server) UpdateAccountClaims(*Account, any) { panic(errors.ErrUnsupported) }

// MemAccResolver holds accounts in memory, which a process cannot share.
type MemAccResolver struct{}

// Store keeps nothing.
func (*MemAccResolver) Store(string, string) error { return nil }

// SetAccountResolver cannot be had from another process.
func (s *Server) SetAccountResolver(any) { panic(errors.ErrUnsupported) }

var names = []string{"a", "b", "c", "d"}

// A folder with keys of all sites.
var keys = sync.OnceValue(func() string {
	folder, err := os.MkdirTemp("", "keys")
	if err != nil {
		panic(err)
	}
	arguments := []string{"overlay", "keys", folder}
	for _, name := range names {
		arguments = append(arguments, "--site", name)
	}
	if text, err := exec.Command(os.Getenv("TOLLWAY"), arguments...).CombinedOutput(); err != nil {
		panic(string(text))
	}
	return folder
})

func free() int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}
