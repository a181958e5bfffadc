package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// VERSION is that of the package which this one stands for.
const VERSION = "2.12.6"

// Options of a server. What is zero is not asked for.
type Options struct {
	Host                       string
	Port                       int
	Username, Password         string
	Authorization              string
	Users                      []*User
	Nkeys                      []*NkeyUser
	TrustedKeys                []string
	MaxConn, MaxSubs           int
	NoHeaderSupport, JetStream bool
	TLSConfig                  *tls.Config
	TLSTimeout                 float64
	TLSHandshakeFirst          bool
	Cluster                    ClusterOpts
	Routes                     []*url.URL
	other                      string
}

// ClusterOpts are the address for other servers.
type ClusterOpts struct {
	Name, Host string
	Port       int
}

// User is a client's name, password and permissions.
type User struct {
	Username, Password string
	Permissions        *Permissions
}

// NkeyUser is a client's public key.
type NkeyUser struct{ Nkey string }

// Permissions of a client.
type Permissions struct{ Publish, Subscribe *SubjectPermission }

// SubjectPermission lists patterns.
type SubjectPermission struct{ Allow, Deny []string }

// TLSConfigOpts names PEM files.
type TLSConfigOpts struct {
	CertFile, KeyFile, CaFile string
	Verify, Insecure          bool
	Timeout                   float64
}

// The files of configurations made by GenTLSConfig.
var files = map[*tls.Config]*TLSConfigOpts{}

// GenTLSConfig makes a server's TLS configuration of files.
func GenTLSConfig(from *TLSConfigOpts) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(from.CertFile, from.KeyFile)
	if err != nil {
		return nil, err
	}
	made := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if from.CaFile != "" {
		text, err := os.ReadFile(from.CaFile)
		if err != nil {
			return nil, err
		}
		made.ClientCAs = x509.NewCertPool()
		made.ClientCAs.AppendCertsFromPEM(text)
	}
	if from.Verify {
		made.ClientAuth = tls.RequireAndVerifyClientCert
	}
	files[made] = from
	return made, nil
}

// RoutesFromStr splits a list of addresses.
func RoutesFromStr(list string) []*url.URL {
	var routes []*url.URL
	for _, text := range strings.Split(list, ",") {
		route, err := url.Parse(strings.TrimSpace(text))
		if err != nil {
			panic(err)
		}
		routes = append(routes, route)
	}
	return routes
}

// Read finds the keys in a configuration file that a site has, too. Of others it keeps one name.
func Read(file string) *Options {
	bytes, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	text := regexp.MustCompile(`(?m)#.*$`).ReplaceAllString(string(bytes), "")
	find := func(key string) string {
		found := regexp.MustCompile(`\b` + key + `\s*[:=]?\s*"?([^\s",}]+)`).FindStringSubmatch(text)
		if found == nil {
			return ""
		}
		return found[1]
	}
	number := func(text string) int {
		number, _ := strconv.Atoi(text)
		return number
	}
	options := &Options{Host: "0.0.0.0", Port: 4222}
	if host, port, err := net.SplitHostPort(find("listen")); err == nil {
		options.Host, options.Port = host, number(port)
	} else if find("port") != "" {
		options.Host, options.Port = find("net"), number(find("port"))
	}
	if certificate := find("cert_file"); certificate != "" {
		options.TLSConfig, err = GenTLSConfig(&TLSConfigOpts{
			CertFile: certificate, KeyFile: find("key_file"), CaFile: find("ca_file"), Verify: find("verify") == "true",
		})
		if err != nil {
			panic(err)
		}
	}
	options.MaxConn, options.MaxSubs = number(find("max_connections")), number(find("max_subscriptions"))
	limit := number(find("max_conn"))
	users := regexp.MustCompile(`\buser\s*:\s*"?(\w+)"?[\s,]*\bpassword\s*:\s*"?(\w+)`)
	found := users.FindAllStringSubmatch(text, -1)
	for _, user := range found {
		options.Users = append(options.Users, &User{Username: user[1], Password: user[2]})
	}
	if len(found) == 1 {
		options.Users, options.Username, options.Password = nil, found[0][1], found[0][2]
	}
	for _, key := range []string{"permissions", "jetstream", "mappings", "websocket", "routes", "operator"} {
		if regexp.MustCompile(`\b` + key + `\b`).MatchString(text) {
			options.other = key
		}
	}
	if limit > 0 {
		options.other = "max_conn"
	}
	return options
}

// What a site has no key for.
func (o *Options) refused() string {
	for what, asked := range map[string]bool{
		"keys for clients beside those for links": o.TLSConfig != nil && o.Cluster.Port != 0,
		"nkeys":           len(o.Nkeys) > 0,
		"trusted keys":    len(o.TrustedKeys) > 0,
		"no headers":      o.NoHeaderSupport,
		"jetstream":       o.JetStream,
		"TLS before INFO": o.TLSHandshakeFirst,
		o.other:           o.other != "",
	} {
		if asked {
			return what
		}
	}
	for _, user := range o.Users {
		if user.Permissions != nil {
			return "permissions"
		}
	}
	return ""
}

// The text of a site's file.
func (o *Options) site() string {
	host := o.Host
	if found, err := net.LookupHost(host); err == nil {
		host = found[0]
	}
	address := net.JoinHostPort(host, strconv.Itoa(o.Port))
	text := fmt.Sprintf("site = %q\nlisten = %q\n", site(o.Cluster.Port), address)
	if o.Cluster.Port != 0 {
		text += fmt.Sprintf("advertise = %q\n", address) + o.links()
	}
	if from := files[o.TLSConfig]; o.TLSConfig != nil {
		here, _ := os.Getwd()
		text += fmt.Sprintf("tls = \"on\"\n[keys]\nauthority = \"%s/configs/certs/ca.pem\"\n", here)
		text += fmt.Sprintf("certificate = \"%s/%s\"\nkey = \"%[1]s/%[3]s\"\n", here, from.CertFile, from.KeyFile)
	}
	limits := ""
	if o.MaxConn > 0 {
		limits += fmt.Sprintf("connections = %d\n", o.MaxConn)
	}
	if o.MaxSubs > 0 {
		limits += fmt.Sprintf("subscriptions = %d\n", o.MaxSubs)
	}
	users := o.Users
	if o.Username != "" {
		users = append(users, &User{Username: o.Username, Password: o.Password})
	}
	for _, user := range users {
		text += fmt.Sprintf("[tenant.%s]\npassword = %q\n%s", user.Username, user.Password, limits)
	}
	if o.Authorization != "" {
		text += fmt.Sprintf("[tenant.holder]\ntoken = %q\n%s", o.Authorization, limits)
	} else if len(users) == 0 {
		text += "[tenant.default]\n" + limits
	}
	return text
}

// The sites that have a port for others, or that a route leads to, in this order.
var sites []int

// The name of the site with this port for others.
func site(port int) string {
	at := slices.Index(sites, port)
	if at < 0 {
		at = len(sites)
		sites = append(sites, port)
	}
	return names[at]
}

// The links to all other sites: those of routes have an address, others connect.
func (o *Options) links() string {
	own := site(o.Cluster.Port)
	text := "[keys]\nauthority = \"" + keys() + "/ca.pem\"\n"
	text += fmt.Sprintf("certificate = \"%s/%s.pem\"\nkey = \"%[1]s/%[2]s.key\"\n", keys(), own)
	text += fmt.Sprintf("[links]\nlisten = \"127.0.0.1:%d\"\n", o.Cluster.Port)
	addresses := map[string]string{}
	for _, route := range o.Routes {
		port, _ := strconv.Atoi(route.Port())
		addresses[site(port)] = fmt.Sprintf("address = %q\n", route.Host)
	}
	for _, name := range names {
		if name != own {
			text += fmt.Sprintf("[link.%s]\nrate = \"1 Gbps\"\n%s", name, addresses[name])
		}
	}
	return text
}

// The text of a file of nats-server, which reads JSON.
func (o *Options) nats() map[string]any {
	file := map[string]any{"listen": net.JoinHostPort(o.Host, strconv.Itoa(o.Port))}
	authorization := map[string]any{}
	if o.Username != "" {
		authorization["user"], authorization["password"] = o.Username, o.Password
	}
	if o.Authorization != "" {
		authorization["token"] = o.Authorization
	}
	var users []any
	for _, user := range o.Users {
		entry := map[string]any{"user": user.Username, "password": user.Password}
		if rights := user.Permissions; rights != nil {
			entry["permissions"] = map[string]any{"publish": rights.Publish.of(), "subscribe": rights.Subscribe.of()}
		}
		users = append(users, entry)
	}
	for _, user := range o.Nkeys {
		users = append(users, map[string]any{"nkey": user.Nkey})
	}
	if users != nil {
		authorization["users"] = users
	}
	if len(authorization) > 0 {
		file["authorization"] = authorization
	}
	if o.MaxConn > 0 {
		file["max_connections"] = o.MaxConn
	}
	if o.NoHeaderSupport {
		file["no_header_support"] = true
	}
	if from := files[o.TLSConfig]; o.TLSConfig != nil {
		secure := map[string]any{"cert_file": from.CertFile, "key_file": from.KeyFile, "verify": from.Verify}
		if from.CaFile != "" {
			secure["ca_file"] = from.CaFile
		}
		if o.TLSTimeout > 0 {
			secure["timeout"] = o.TLSTimeout
		}
		if o.TLSHandshakeFirst {
			secure["handshake_first"] = true
		}
		file["tls"] = secure
	}
	if o.Cluster.Port == 0 && o.Cluster.Name != "" {
		file["cluster"] = map[string]any{"name": o.Cluster.Name}
	} else if o.Cluster.Port != 0 {
		routes := []string{}
		for _, route := range o.Routes {
			routes = append(routes, route.String())
		}
		at := net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Cluster.Port))
		file["cluster"] = map[string]any{"name": o.Cluster.Name, "listen": at, "routes": routes}
	}
	return file
}

func (p *SubjectPermission) of() map[string]any {
	rights := map[string]any{}
	if p != nil && p.Allow != nil {
		rights["allow"] = p.Allow
	}
	if p != nil && p.Deny != nil {
		rights["deny"] = p.Deny
	}
	return rights
}
