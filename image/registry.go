// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
)

// RegistryOptions say how a registry is asked.
type RegistryOptions struct {
	// Insecure lets the registry be asked without TLS. A registry on this host
	// (localhost, 127.0.0.0/8, ::1) may be in any case.
	Insecure bool
	// Public has it asked without the operator's credentials and at public addresses alone, through no
	// proxy, which would look for them itself. So is all that it leads to.
	Public bool
	// Login is what it is asked with, instead of Keychain.
	Login *Login
	// Keychain gives credentials; nil is that of the Docker configuration,
	// with its credential helpers.
	Keychain authn.Keychain
}

// Login is how one registry is asked. It is kept nowhere, and in no error.
type Login struct{ Username, Password string }

// Resolve implements [authn.Keychain]: the library asks for one registry alone.
func (l *Login) Resolve(authn.Resource) (authn.Authenticator, error) {
	return &authn.Basic{Username: l.Username, Password: l.Password}, nil
}

// Pull finds an image in its registry. A tag is resolved now; the layers are
// fetched by their digests when they are opened, for as long as ctx lives.
func Pull(ctx context.Context, r reference.Ref, o RegistryOptions) (*Image, error) {
	options := []name.Option{name.StrictValidation}
	if o.Insecure {
		options = append(options, name.Insecure)
	}
	ref, err := name.ParseReference(strictName(r), options...)
	if err != nil {
		return nil, invalid("%v", err)
	}
	next := newTransport()
	switch {
	case o.Public:
		o.Keychain, next.Proxy = authn.NewMultiKeychain(), nil
		next.DialContext = (&net.Dialer{Timeout: 30 * time.Second, Control: publicOnly}).DialContext
	case o.Keychain == nil:
		o.Keychain = authn.DefaultKeychain
	}
	if o.Login != nil {
		o.Keychain = o.Login
	}
	tr := &plainOnlyWhereAllowed{next: next, host: r.Host, allowed: o.Insecure || isLoopback(r.Host)}
	desc, err := remote.Get(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(o.Keychain), remote.WithTransport(tr),
		remote.WithUserAgent("caisson"), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil {
		return nil, pullError(r, err)
	}
	img, err := desc.Image()
	if err != nil {
		return nil, pullError(r, err)
	}
	return fromRegistry(r, img)
}

// strictName is how the library wants references written.
func strictName(r reference.Ref) string {
	s := r.Host
	if s == "docker.io" {
		s = "index.docker.io"
	}
	s += "/" + r.Repository
	if r.Digest != "" {
		return s + "@" + r.Digest // where both are said, the digest counts
	}
	return s + ":" + r.Tag
}

func fromRegistry(r reference.Ref, from v1.Image) (*Image, error) {
	raw, err := from.RawManifest()
	if err != nil {
		return nil, pullError(r, err)
	}
	m, err := parseManifest(raw)
	if err != nil {
		return nil, err
	}
	if m.Config.Size < 0 || m.Config.Size > maxDocument {
		return nil, invalid("its configuration is of %d bytes", m.Config.Size)
	}
	config, err := from.RawConfigFile()
	if err != nil {
		return nil, pullError(r, err)
	}
	img := &Image{Digest: digestOf(raw)}
	var diffIDs []string
	if img.Config, diffIDs, err = ParseConfig(config); err != nil {
		return nil, err
	}
	if img.Layers, img.Size, err = blobs(m.Layers, diffIDs); err != nil {
		return nil, err
	}
	for i := range img.Layers {
		l := &img.Layers[i]
		hash, err := v1.NewHash(l.Digest)
		if err != nil {
			return nil, invalid("%v", err)
		}
		l.Open = func() (io.ReadCloser, error) {
			remoteLayer, err := from.LayerByDigest(hash)
			if err != nil {
				return nil, pullError(r, err)
			}
			rc, err := remoteLayer.Compressed()
			if err != nil {
				return nil, pullError(r, err)
			}
			return rc, nil
		}
	}
	return img, nil
}

// newTransport has a bound on every wait but that for the body, which ends
// with the caller's context.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   15 * time.Second,
		ResponseHeaderTimeout: 60 * time.Second,
		IdleConnTimeout:       30 * time.Second,
		MaxIdleConns:          10,
	}
}

// plainOnlyWhereAllowed refuses requests without TLS, also those that a
// registry redirects to or names as its token server, unless the registry may
// be asked so. The library would fall back to them for private addresses.
type plainOnlyWhereAllowed struct {
	next    http.RoundTripper
	host    string
	allowed bool
}

var errPlain = errors.New("a request without TLS")

func (t *plainOnlyWhereAllowed) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && !(t.allowed && req.URL.Scheme == "http" && req.URL.Host == t.host) {
		return nil, fmt.Errorf("%w to %s was refused", errPlain, req.URL.Host)
	}
	return t.next.RoundTrip(req)
}

var errPrivate = errors.New("an address that is not public")

// publicOnly lets a connection be made to a public address: to what a name was resolved to,
// as it is used.
func publicOnly(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if rule.Classify(at.Addr()) != rule.Public {
		return errPrivate
	}
	return nil
}

// isLoopback says whether a registry is on this host.
func isLoopback(host string) bool {
	h := host
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		h = host[:i]
	}
	addr, err := netip.ParseAddr(strings.Trim(h, "[]"))
	return h == "localhost" || err == nil && addr.IsLoopback()
}

// dockerSocket is where the daemon of a local Docker is asked, which is not done here.
const dockerSocket = "/var/run/docker.sock"

// fromDocker is how an image comes here that only a Docker daemon has.
func fromDocker(r reference.Ref) string {
	return "one that only a local Docker has: docker save " + r.Familiar() + " -o image.tar, then --image ./image.tar"
}

// pullError turns the library's errors into sentences.
func pullError(r reference.Ref, err error) error {
	e := &sandbox.Error{Op: "pull " + r.Familiar(), Kind: sandbox.ErrUnavailable, Problem: "the registry " + r.Host + " cannot be asked",
		Hint: "check the network, or pull it when there is one", Cause: err}
	var te *transport.Error
	var ne net.Error
	switch {
	case errors.Is(err, errPlain):
		e.Kind, e.Problem, e.Hint = sandbox.ErrDenied, "the registry speaks plain HTTP, or leads to a host that does", "take --insecure-registry if that is meant"
		e.Rule = "built-in: registries speak TLS"
	case errors.Is(err, errPrivate):
		e.Kind, e.Problem, e.Hint, e.Cause = sandbox.ErrDenied, "the registry is at no public address, or leads to one that is not", "have the operator pull it: caisson image pull "+r.Familiar(), nil
		e.Rule = "built-in: images of keys come from public registries"
	case errors.As(err, &te) && (te.StatusCode == http.StatusUnauthorized || te.StatusCode == http.StatusForbidden):
		e.Kind, e.Problem, e.Hint = sandbox.ErrNotFound, "there is no such image, or it may not be read", "check the name; log in with docker login "+r.Host+"; "+fromDocker(r)
	case errors.As(err, &te) && te.StatusCode == http.StatusNotFound:
		e.Kind, e.Problem, e.Hint = sandbox.ErrNotFound, "there is no such image", "check the name and the tag; "+fromDocker(r)
	case errors.As(err, &te) && te.StatusCode == http.StatusTooManyRequests:
		e.Problem, e.Hint = "the registry asks for patience (too many requests)", "try again later, or log in with docker login "+r.Host
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.Problem, e.Hint = "it was interrupted", "pull it again"
	case errors.As(err, &ne):
		if _, err := os.Stat(dockerSocket); err == nil {
			e.Hint += "; " + fromDocker(r)
		}
	case strings.Contains(err.Error(), "no child with platform"):
		e.Kind, e.Problem, e.Hint, e.Cause = sandbox.ErrNotFound, "there is no such image for "+Platform(), "use one that was built for this processor", nil
	}
	return e
}
