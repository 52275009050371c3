// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/sandbox"
)

// The helpers parse what they compare. What they cannot parse is an error, and a
// rule with an error refuses.

// email takes an address apart. It takes the plain form alone, which every mailer
// delivers to the domain behind the @.
//
// The local part is letters, digits and ._+-' and begins with a letter, digit or _. So
// it holds no route of its own: a%evil.com@company.com and evil.com!a@company.com are
// passed on by some mailers, /S=a/@company.com by gateways; a leading - is an option.
// The domain is a host name as it is looked up, in any case of letters: one that
// Unicode's mapping makes another name (ｃompany.com) is refused.
func email(s string) (local, domain string, err error) {
	local, domain, ok := strings.Cut(s, "@")
	if !ok || !plainLocal(local) {
		return "", "", fmt.Errorf("%s is not a plain e-mail address", shown(s))
	}
	n, err := rule.ParseName(domain)
	if err != nil || strings.HasSuffix(domain, ".") || !n.Spells(domain) {
		return "", "", fmt.Errorf("%s has no plain host name", shown(s))
	}
	return local, n.String(), nil
}

// plainLocal says whether a local part is plain; see email.
func plainLocal(s string) bool {
	if len(s) > 64 || s == "" || strings.ContainsRune(".+-'", rune(s[0])) || strings.HasSuffix(s, ".") || strings.Contains(s, "..") {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._+-'", r))
	}) < 0
}

func emailDomain(s string) (string, error) { _, domain, err := email(s); return domain, err }
func emailLocal(s string) (string, error)  { local, _, err := email(s); return local, err }

// hostOf is the one spelling of a host: a name, or an address.
func hostOf(s string) (string, error) {
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); err == nil && a.Zone() == "" {
		return a.Unmap().String(), nil
	}
	n, err := rule.ParseName(s)
	if err != nil {
		return "", fmt.Errorf("%s is not a host: %v", shown(s), err)
	}
	return n.String(), nil
}

// hostUnder says whether a host is domain, or a name below it.
func hostUnder(s, domain string) (bool, error) {
	h, err := hostOf(s)
	if err != nil {
		return false, err
	}
	d, err := rule.ParseName(domain)
	if err != nil {
		return false, fmt.Errorf("%s is not a domain", shown(domain))
	}
	return h == d.String() || strings.HasSuffix(h, "."+d.String()), nil
}

// urlOf takes a URL apart. It takes absolute ones of http and https, without a
// user, and without what makes readers differ.
func urlOf(s string) (map[string]any, error) {
	if len(s) > 8192 || strings.ContainsAny(s, "\\ ") || strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) >= 0 {
		return nil, fmt.Errorf("%s is not a plain URL", shown(s))
	}
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" || u.Host == "" {
		return nil, fmt.Errorf("%s is not an absolute URL", shown(s))
	}
	port := map[string]int{"http": 80, "https": 443}[u.Scheme]
	if port == 0 {
		return nil, fmt.Errorf("%s is not of http or https", shown(s))
	}
	if u.User != nil {
		return nil, fmt.Errorf("%s names a user, which hides the host", shown(s))
	}
	if p := u.Port(); p != "" {
		if port, err = strconv.Atoi(p); err != nil || port < 1 || port > 65535 {
			return nil, fmt.Errorf("%s has no port that can be", shown(s))
		}
	} else if strings.HasSuffix(u.Host, ":") {
		return nil, fmt.Errorf("%s has an empty port", shown(s))
	}
	host, err := hostOf(u.Hostname())
	if err != nil {
		return nil, err
	}
	if raw := strings.ToLower(u.EscapedPath()); strings.Contains(raw, "%2f") || strings.Contains(raw, "%5c") || strings.Contains(raw, "%00") || strings.Contains(raw, "%25") {
		return nil, fmt.Errorf("%s hides a part of its path", shown(s))
	}
	return map[string]any{"scheme": u.Scheme, "host": host, "port": int64(port), "path": path.Clean("/" + u.Path), "query": u.RawQuery}, nil
}

var errRelative = errors.New("is not an absolute path")

// pathClean is the one spelling of an absolute path: no . or .., no slash twice.
func pathClean(s string) (string, error) {
	if !path.IsAbs(s) || strings.ContainsRune(s, 0) || len(s) > 4096 {
		return "", fmt.Errorf("%s %w", shown(s), errRelative)
	}
	return path.Clean(s), nil
}

func pathBase(s string) (string, error) {
	s, err := pathClean(s)
	return path.Base(s), err
}

func pathExt(s string) (string, error) {
	s, err := pathClean(s)
	return path.Ext(s), err
}

// pathUnder says whether a path is dir, or below it. Links are not looked at:
// those are the sandbox's.
func pathUnder(s, dir string) (bool, error) {
	p, err := pathClean(s)
	if err != nil {
		return false, err
	}
	if dir, err = pathClean(dir); err != nil {
		return false, err
	}
	return sandbox.Within(p, dir), nil
}

// globMatches says whether the whole of a text matches a pattern, in which * stands
// for any text and ? for one character. It goes back to one * at most, so the time
// is bounded by the product of both.
func globMatches(s, pattern string) (bool, error) {
	if len(pattern) > 256 || len(s) > 16<<10 {
		return false, errors.New("glob compares texts of 16 KiB with patterns of 256 bytes at most")
	}
	text, want := []rune(s), []rune(pattern)
	i, j, star, mark := 0, 0, -1, 0
	for i < len(text) {
		switch {
		case j < len(want) && want[j] == '*':
			star, mark = j, i
			j++
		case j < len(want) && (want[j] == '?' || want[j] == text[i]):
			i, j = i+1, j+1
		case star >= 0:
			mark++
			i, j = mark, star+1
		default:
			return false, nil
		}
	}
	for j < len(want) && want[j] == '*' {
		j++
	}
	return j == len(want), nil
}

// shown is a value in a message.
func shown(s string) string { return strconv.Quote(sandbox.Clip(s, 80)) }
