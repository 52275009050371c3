// SPDX-License-Identifier: Apache-2.0

package openai_test

import (
	"testing"

	"github.com/caisson-run/caisson/api/apitest"
)

// TestClient runs testdata/sdk: OpenAI's official client, unmodified, against a
// built caisson serve and its default level. make test-openai sees to the client.
func TestClient(t *testing.T) {
	c := apitest.BuiltCaisson(t, "test-openai")
	mine, other := c.Key(t, "mine"), c.Key(t, "other")
	apitest.Node(t, "testdata/sdk", []string{"OPENAI_BASE_URL=" + c.Serve(t) + "/v1", "OPENAI_API_KEY=" + mine, "CAISSON_OTHER_KEY=" + other})
}
