package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// checkExposure refuses to listen where others can reach the server, unless
// they need a token, and a token that no header can bring.
func checkExposure(cfg Config) error {
	_, _, err := net.SplitHostPort(cfg.Addr)
	switch {
	case err != nil:
		return fmt.Errorf("-addr %q is no host:port, such as 127.0.0.1:3000", cfg.Addr)
	case strings.ContainsFunc(cfg.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("REDRIVE_TOKEN must be visible ASCII without blanks or line ends")
	case cfg.Token == "" && !isLoopback(cfg.Addr):
		return fmt.Errorf("%s can be reached from other machines; set REDRIVE_TOKEN, which every request must then bring,"+
			" or listen on 127.0.0.1", cfg.Addr)
	}
	return nil
}

// isLoopback reports whether a host, with or without a port, is a name of this
// machine for itself.
func isLoopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// guard decides who may call, as IAM does on AWS.
//
// Without a token, being on this machine is the credential. A page in a browser
// on this machine has it too, so requests that a browser sends from elsewhere
// are refused, and so are names that only lead here through a foreign DNS
// (rebinding).
func guard(cfg Config, next http.Handler) http.Handler {
	browsers := http.NewCrossOriginProtection()
	local := isLoopback(cfg.Addr)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Check lets methods pass that should be safe; here no foreign page may read either.
		asWrite := *r
		asWrite.Method = http.MethodPost
		switch {
		case local && !isLoopback(r.Host):
			own(w, cfg.Log, http.StatusForbidden, "Forbidden: the Host header must be a loopback name")
		case browsers.Check(&asWrite) != nil:
			own(w, cfg.Log, http.StatusForbidden, "Forbidden: the request comes from another origin")
		case cfg.Token != "" && !bears(r, cfg.Token):
			w.Header().Set("WWW-Authenticate", "Bearer")
			own(w, cfg.Log, http.StatusUnauthorized,
				"Unauthorized: send Authorization: Bearer with the token in REDRIVE_TOKEN")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// bears reports whether the request brings the token. Comparing the digests
// takes the same time whatever was sent.
func bears(r *http.Request, token string) bool {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	want, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}
