// SPDX-License-Identifier: Apache-2.0

package drafts_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/caisson-run/caisson/tool/params/drafts"
)

var all = []*jsonschema.Draft{jsonschema.Draft4, jsonschema.Draft6, jsonschema.Draft7, jsonschema.Draft2019, jsonschema.Draft2020}

// taken are the drafts of which src is a schema.
func taken(t *testing.T, src string) (list []*jsonschema.Draft) {
	t.Helper()
	for _, d := range all {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(src))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		c.DefaultDraft(d)
		if err := c.AddResource("mem:///schema", doc); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Compile("mem:///schema"); err == nil {
			list = append(list, d)
		}
	}
	return list
}

// TestReady: before, nothing is a schema; after, what each draft says is one.
// Before is another process, in which no other test can have been first.
func TestReady(t *testing.T) {
	const good = `{"type":"object","required":["a"],"properties":{"a":{"enum":[1]}}}`
	bad := []string{`{"type":"nonsense"}`, `{"properties":{"a":{"required":"a"}}}`, `{"maximum":"x"}`, `{"items":{"pattern":1}}`}
	if os.Getenv("DRAFTS_BEFORE") != "" {
		for _, src := range append(bad, good, `{}`) {
			if d := taken(t, src); d != nil {
				t.Errorf("%s is taken for a schema of %v before Ready", src, d)
			}
		}
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestReady$")
	cmd.Env = append(os.Environ(), "DRAFTS_BEFORE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	drafts.Ready()
	if d := taken(t, good); !slices.Equal(d, all) {
		t.Errorf("%s is taken for a schema of %v only", good, d)
	}
	for _, src := range bad {
		if d := taken(t, src); d != nil {
			t.Errorf("%s is taken for a schema of %v", src, d)
		}
	}
}
