// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/caisson-run/caisson/egress/ca"
	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// trustDir is where a sandbox finds whom to trust, when its router ends TLS.
const trustDir = "/etc/caisson"

// trustEnv are the variables by which programs are told where that is: OpenSSL and
// Go, curl, Python's requests and pip, Node, git, cargo, Deno and the AWS tools,
// each by its own documentation. Java reads no PEM.
func trustEnv(bundle, store string) map[string]string {
	env := map[string]string{
		"JAVA_TOOL_OPTIONS": "-Djavax.net.ssl.trustStore=" + store + " -Djavax.net.ssl.trustStoreType=JKS -Djavax.net.ssl.trustStorePassword=" + ca.JavaPassword,
	}
	for _, name := range []string{
		"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO",
		"PIP_CERT", "CARGO_HTTP_CAINFO", "DENO_CERT", "AWS_CA_BUNDLE",
	} {
		env[name] = bundle
	}
	return env
}

// addTrust shows the sandbox its root's certificates of authorities together
// with a's, which signs for the hosts whose TLS is ended: as a
// file that variables point at, and in the place of the root's own. It does
// nothing where no TLS is ended.
func (e *Environment) addTrust(a *ca.Authority) error {
	if a == nil {
		return nil
	}
	fail := func(problem string, err error) error {
		return &sandbox.Error{Op: "prepare network", Kind: sandbox.ErrUnavailable, Problem: problem, Cause: err}
	}
	bundle, at, err := e.rootBundle()
	if err != nil {
		return fail("the certificates of authorities in the root cannot be read", err)
	}
	bundle = append(append(bundle, '\n'), a.PEM()...)
	store, err := ca.Java(bundle)
	if err != nil {
		return fail("the certificates of authorities in the root cannot be read", err)
	}
	dir := trustDir
	if e.o.Plan.Rootfs != nil && slices.Contains(e.o.Plan.Writable, "/tmp") {
		dir = "/tmp" // nothing is made in a tree of the operator's
	}
	places := map[string][]string{"trust.pem": {path.Join(dir, "caisson-trust.pem")}, "trust.jks": {path.Join(dir, "caisson-trust.jks")}}
	if at != "" {
		places["trust.pem"] = append(places["trust.pem"], at)
	}
	for name, content := range map[string][]byte{"trust.pem": bundle, "trust.jks": store} {
		file := filepath.Join(e.Spec.StateDir, name)
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return fail("the state directory cannot be written", err)
		}
		for _, target := range places[name] {
			if err := e.show(file, target); err != nil {
				return fail("the state directory cannot be read", err)
			}
		}
	}
	e.Trust = trustEnv(places["trust.pem"][0], places["trust.jks"][0])
	return nil
}

// rootBundle reads the certificates that the sandbox's root trusts, and says where
// they are, when something can be mounted there. A root without any has none.
func (e *Environment) rootBundle() (bundle []byte, at string, err error) {
	read := func(p string) ([]byte, error) { return readBounded(os.Open(p)) }
	switch {
	case e.Image != nil:
		read = func(p string) ([]byte, error) { return e.imageFile(p, ca.MaxBundle) }
	case e.o.Plan.Rootfs != nil:
		src, err := e.o.Host.Open(policy.PlanPath{Source: e.o.Plan.Rootfs.Source, Beneath: e.o.Plan.Rootfs.Beneath}, "rootfs", sandbox.ReadOnly)
		if err != nil {
			return nil, "", err
		}
		read = func(p string) ([]byte, error) { return readBounded(readBelow(src.File, p[1:])) }
	}
	bundle, at, err = ca.FirstBundle(ca.Bundles(), read)
	if bundle == nil && at == "" {
		return nil, "", nil // there is none
	}
	if e.Image == nil && e.o.Plan.Rootfs == nil {
		// What is a link on the host is one in the sandbox's /etc.
		if real, err := filepath.EvalSymlinks(at); err != nil || real != at {
			return bundle, "", nil
		}
	}
	return bundle, at, err
}

func readBounded(f *os.File, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, ca.MaxBundle+1))
}

// addNameServer shows a root that is not ours the sandbox's resolver.
func (e *Environment) addNameServer() error {
	n := e.Spec.Network
	text := ""
	switch {
	case n != nil && (e.o.Plan.Rootfs != nil || e.Image != nil || e.packed()):
		text = image.ResolvConf(n.Gateway)
	case e.Image == nil || !e.Spec.Sudo: // gVisor makes no layer over an image where no file is mounted
		return nil
	}
	name := filepath.Join(e.Spec.StateDir, "resolv.conf")
	err := os.WriteFile(name, []byte(text), 0o644)
	if err == nil {
		err = e.show(name, "/etc/resolv.conf")
	}
	if err != nil {
		return &sandbox.Error{Op: "prepare network", Kind: sandbox.ErrUnavailable, Problem: "the state directory cannot be used", Hint: "free some space there", Cause: err}
	}
	return nil
}
