package consume

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/gorilla/websocket"
)

// advice says what an operator can do about a connection to the relay that was not made. It stands
// in the log beside the error; it is "" if the error says it all.
func advice(err error) string {
	var (
		refused  *refusedError
		proxied  *proxyError
		dns      *net.DNSError
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
		invalid  x509.CertificateInvalidError
		record   tls.RecordHeaderError
		timeout  net.Error
	)
	switch {
	case err == nil:
		return ""
	case errors.Is(err, syscall.EMFILE):
		return "this process may have no more open files: raise LimitNOFILE= in the systemd unit, or ulimit -n"
	case errors.As(err, &refused):
		return refused.advice()
	case errors.As(err, &unknown):
		return "its certificate is of an authority that this machine does not know: install ca-certificates, or the authority's certificate"
	case errors.As(err, &hostname):
		return "its certificate is another host's: check --relay"
	case errors.As(err, &invalid):
		return "its certificate is not valid now: check this machine's clock; else it is the relay's to renew"
	case errors.As(err, &record):
		return "it does not speak TLS: if it is meant to be so, give --relay ws:// instead of wss://"
	case errors.As(err, &proxied):
		return "the way there is through the proxy of HTTPS_PROXY (ws://: HTTP_PROXY): check that, or name the relay in NO_PROXY"
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no host has this name: check --relay, and the machine's DNS"
	case errors.As(err, &dns):
		return "the machine's DNS does not answer"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there: check host and port of --relay, and that the relay runs"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "this machine has no way there: check its network"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "it does not answer: check host and port of --relay, and what firewalls let through"
	// which has no type
	case errors.Is(err, websocket.ErrBadHandshake), errors.Is(err, errLongHandshake), strings.Contains(err.Error(), "malformed HTTP"):
		return "it does not speak websocket: check host and port of --relay"
	}
	return ""
}

// advice says what an answer other than the upgrade means most of the time.
func (e *refusedError) advice() string {
	switch {
	case e.code == http.StatusUnauthorized, e.code == http.StatusForbidden:
		return "it does not let this machine in: ask its operator, or follow another relay with --relay"
	case e.code == http.StatusNotFound, e.code == http.StatusMethodNotAllowed, e.code >= 200 && e.code < 300:
		return "there is no com.atproto.sync.subscribeRepos: is --relay a relay, or a PDS?"
	case e.code >= 300 && e.code < 400:
		return "it sends us elsewhere, where we do not follow: give that address with --relay"
	case e.code == http.StatusTooManyRequests:
		return "it takes no more connections from here for now: end other consumers on this machine; it is tried again"
	case e.code < 200, e.code == http.StatusUpgradeRequired,
		e.code == http.StatusBadRequest && e.name == "": // else a relay has understood, and refuses
		return "it does not speak websocket there, or speaks TLS only: check --relay, wss:// for TLS, ws:// without"
	case e.code >= 500:
		return "it, or the proxy before it, is in trouble; it is tried again"
	}
	return ""
}
