// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"
)

// knockTime is how long one knock may take, and mustTime one that is allowed: on a
// machine that is busy, much may begin late.
const (
	knockTime = 2 * time.Second
	mustTime  = 20 * time.Second
)

// network knocks at what it is told to.
func network(text string) int {
	var plan Knocks
	if err := json.Unmarshal([]byte(text), &plan); err != nil {
		return 125
	}
	for _, k := range plan.List {
		k.Bytes = strings.ReplaceAll(k.Bytes, Placeholder, os.Getenv(SecretName))
		t := Try{Case: plan.Case, What: k.What}
		answer, err := k.knock(plan.Resolver)
		if err != nil {
			t.Error = err.Error()
		}
		t.Got, t.Found = err == nil, canaries(answer)
		say(t)
	}
	say(Try{Case: CaseReady, Count: int64(len(plan.List))})
	return 0
}

// knock says something to a host, and waits for a word.
func (k Knock) knock(resolver string) (answer []byte, err error) {
	wait := knockTime
	if k.Must {
		wait = mustTime
	}
	if k.Query != 0 {
		return ask(resolver, k.To, k.Query, wait)
	}
	host, port, err := net.SplitHostPort(k.To)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err != nil {
		if host, err = lookup(resolver, host, wait); err != nil {
			return nil, err
		}
	}
	way := "tcp"
	if k.UDP {
		way = "udp"
	}
	c, err := net.DialTimeout(way, net.JoinHostPort(host, port), wait)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(wait))
	if k.UDP { // no answer is expected
		_, err := c.Write([]byte(k.Bytes))
		return nil, err
	}
	if _, err := io.WriteString(c, k.First); err != nil {
		return nil, err
	}
	if k.TLS != "" {
		c = tls.Client(c, &tls.Config{ServerName: k.TLS, InsecureSkipVerify: true})
	}
	if _, err := c.Write([]byte(k.Bytes)); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(c, 64<<10))
}

// lookup asks the sandbox's resolver, and not /etc/hosts, for an address.
func lookup(resolver, name string, wait time.Duration) (string, error) {
	answer, err := ask(resolver, name, 1, wait)
	if err != nil {
		return "", err
	}
	// The router answers with one address at most, at the end.
	if len(answer) < 16 || answer[3]&0xf != 0 || answer[7] != 1 {
		return "", errors.New("the resolver has no address for it")
	}
	return netip.AddrFrom4([4]byte(answer[len(answer)-4:])).String(), nil
}

// ask makes a query of some type.
func ask(resolver, name string, kind uint16, wait time.Duration) ([]byte, error) {
	c, err := net.DialTimeout("udp", resolver, wait)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(wait))
	query := make([]byte, 2, 512)
	_, _ = rand.Read(query)
	query = append(query, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0)
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return nil, errors.New("no name that a query could hold")
		}
		query = append(append(query, byte(len(label))), label...)
	}
	query = append(query, 0, byte(kind>>8), byte(kind), 0, 1)
	if _, err := c.Write(query); err != nil {
		return nil, err
	}
	answer := make([]byte, 1500)
	n, err := c.Read(answer)
	return answer[:n], err
}
