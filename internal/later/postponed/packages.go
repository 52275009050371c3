// SPDX-License-Identifier: Apache-2.0

package postponed

import (
	_ "unsafe" // for go:linkname

	"github.com/caisson-run/caisson/internal/later"
)

// What initialises itself later, each package after those that it imports. What
// has nothing to initialise, with this Go, has an empty task here.

// CEL and the protocol buffers that it stands on.
var (
	//go:linkname task01 google.golang.org/protobuf/internal/detrand..inittask
	task01 later.Task
	//go:linkname task02 google.golang.org/protobuf/internal/errors..inittask
	task02 later.Task
	//go:linkname task03 google.golang.org/protobuf/encoding/protowire..inittask
	task03 later.Task
	//go:linkname task04 google.golang.org/protobuf/reflect/protoreflect..inittask
	task04 later.Task
	//go:linkname task05 google.golang.org/protobuf/internal/encoding/text..inittask
	task05 later.Task
	//go:linkname task06 google.golang.org/protobuf/reflect/protoregistry..inittask
	task06 later.Task
	//go:linkname task07 google.golang.org/protobuf/proto..inittask
	task07 later.Task
	//go:linkname task08 google.golang.org/protobuf/internal/filedesc..inittask
	task08 later.Task
	//go:linkname task09 google.golang.org/protobuf/internal/encoding/tag..inittask
	task09 later.Task
	//go:linkname task10 google.golang.org/protobuf/internal/protolazy..inittask
	task10 later.Task
	//go:linkname task11 google.golang.org/protobuf/internal/impl..inittask
	task11 later.Task
	//go:linkname task12 google.golang.org/protobuf/internal/filetype..inittask
	task12 later.Task
	//go:linkname task13 google.golang.org/protobuf/types/known/anypb..inittask
	task13 later.Task
	//go:linkname task14 google.golang.org/genproto/googleapis/rpc/status..inittask
	task14 later.Task
	//go:linkname task15 google.golang.org/protobuf/types/known/durationpb..inittask
	task15 later.Task
	//go:linkname task16 google.golang.org/protobuf/types/known/emptypb..inittask
	task16 later.Task
	//go:linkname task17 google.golang.org/protobuf/internal/encoding/json..inittask
	task17 later.Task
	//go:linkname task18 google.golang.org/protobuf/encoding/protojson..inittask
	task18 later.Task
	//go:linkname task19 google.golang.org/protobuf/types/known/structpb..inittask
	task19 later.Task
	//go:linkname task20 google.golang.org/protobuf/types/known/timestamppb..inittask
	task20 later.Task
	//go:linkname task21 google.golang.org/genproto/googleapis/api/expr/v1alpha1..inittask
	task21 later.Task
	//go:linkname task22 cel.dev/cel-go/checker/decls..inittask
	task22 later.Task
	//go:linkname task23 cel.dev/cel-go/common/operators..inittask
	task23 later.Task
	//go:linkname task24 google.golang.org/protobuf/types/known/wrapperspb..inittask
	task24 later.Task
	//go:linkname task25 cel.dev/cel-go/common/types/pb..inittask
	task25 later.Task
	//go:linkname task26 cel.dev/expr..inittask
	task26 later.Task
	//go:linkname task27 cel.dev/cel-go/common/types..inittask
	task27 later.Task
	//go:linkname task28 cel.dev/cel-go/common/ast..inittask
	task28 later.Task
	//go:linkname task29 cel.dev/cel-go/common/containers..inittask
	task29 later.Task
	//go:linkname task30 cel.dev/cel-go/common/cost..inittask
	task30 later.Task
	//go:linkname task31 cel.dev/cel-go/interpreter..inittask
	task31 later.Task
	//go:linkname task32 go.yaml.in/yaml/v3..inittask
	task32 later.Task
	//go:linkname task33 cel.dev/cel-go/common/env..inittask
	task33 later.Task
	//go:linkname task34 github.com/antlr4-go/antlr/v4..inittask
	task34 later.Task
	//go:linkname task35 cel.dev/cel-go/parser..inittask
	task35 later.Task
	//go:linkname task36 cel.dev/cel-go/checker..inittask
	task36 later.Task
	//go:linkname task37 cel.dev/cel-go/common/stdlib..inittask
	task37 later.Task
	//go:linkname task38 google.golang.org/protobuf/types/descriptorpb..inittask
	task38 later.Task
	//go:linkname task39 google.golang.org/protobuf/types/gofeaturespb..inittask
	task39 later.Task
	//go:linkname task40 google.golang.org/protobuf/reflect/protodesc..inittask
	task40 later.Task
	//go:linkname task41 cel.dev/cel-go/cel..inittask
	task41 later.Task
)

// Registries of container images.
var (
	//go:linkname task42 github.com/opencontainers/go-digest..inittask
	task42 later.Task
	//go:linkname task43 github.com/google/go-containerregistry/pkg/name..inittask
	task43 later.Task
	//go:linkname task44 github.com/google/go-containerregistry/internal/redact..inittask
	task44 later.Task
	//go:linkname task45 github.com/google/go-containerregistry/pkg/logs..inittask
	task45 later.Task
	//go:linkname task46 github.com/opencontainers/image-spec/specs-go..inittask
	task46 later.Task
	//go:linkname task47 github.com/opencontainers/image-spec/specs-go/v1..inittask
	task47 later.Task
	//go:linkname task48 github.com/google/go-containerregistry/pkg/v1/empty..inittask
	task48 later.Task
	//go:linkname task49 github.com/google/go-containerregistry/pkg/v1/remote/internal/authchallenge..inittask
	task49 later.Task
	//go:linkname task50 github.com/google/go-containerregistry/pkg/v1/remote/transport..inittask
	task50 later.Task
	//go:linkname task51 github.com/google/go-containerregistry/pkg/v1/remote..inittask
	task51 later.Task
)

// The doors of a daemon, and of MCP.
var (
	//go:linkname task52 github.com/danielgtaylor/huma/v2/casing..inittask
	task52 later.Task
	//go:linkname task53 github.com/danielgtaylor/huma/v2/yaml..inittask
	task53 later.Task
	//go:linkname task54 github.com/danielgtaylor/huma/v2..inittask
	task54 later.Task
	//go:linkname task55 github.com/modelcontextprotocol/go-sdk/internal/util..inittask
	task55 later.Task
	//go:linkname task56 github.com/modelcontextprotocol/go-sdk/internal/json..inittask
	task56 later.Task
	//go:linkname task57 github.com/modelcontextprotocol/go-sdk/oauthex..inittask
	task57 later.Task
	//go:linkname task58 github.com/modelcontextprotocol/go-sdk/auth..inittask
	task58 later.Task
	//go:linkname task59 github.com/modelcontextprotocol/go-sdk/internal/mcpgodebug..inittask
	task59 later.Task
	//go:linkname task60 github.com/modelcontextprotocol/go-sdk/internal/jsonrpc2..inittask
	task60 later.Task
	//go:linkname task61 github.com/google/jsonschema-go/jsonschema..inittask
	task61 later.Task
	//go:linkname task62 github.com/modelcontextprotocol/go-sdk/mcp..inittask
	task62 later.Task
)

// JSON Schema.
var (
	//go:linkname task63 github.com/santhosh-tekuri/jsonschema/v6..inittask
	task63 later.Task
)

// YAML.
var (
	//go:linkname task64 go.yaml.in/yaml/v4/internal/libyaml..inittask
	task64 later.Task
	//go:linkname task65 go.yaml.in/yaml/v4/internal/plugin..inittask
	task65 later.Task
	//go:linkname task66 go.yaml.in/yaml/v4/plugin/aliasdata..inittask
	task66 later.Task
	//go:linkname task67 go.yaml.in/yaml/v4..inittask
	task67 later.Task
)

func conditions() []*later.Task {
	return []*later.Task{
		&task01, &task02, &task03, &task04, &task05, &task06, &task07, &task08,
		&task09, &task10, &task11, &task12, &task13, &task14, &task15, &task16,
		&task17, &task18, &task19, &task20, &task21, &task22, &task23, &task24,
		&task25, &task26, &task27, &task28, &task29, &task30, &task31, &task32,
		&task33, &task34, &task35, &task36, &task37, &task38, &task39, &task40,
		&task41,
	}
}

func registries() []*later.Task {
	return []*later.Task{
		&task42, &task43, &task44, &task45, &task46, &task47, &task48, &task49,
		&task50, &task51,
	}
}

func serving() []*later.Task {
	return []*later.Task{
		&task52, &task53, &task54, &task55, &task56, &task57, &task58, &task59,
		&task60, &task61, &task62,
	}
}

func schemas() []*later.Task {
	return []*later.Task{
		&task63,
	}
}

func policies() []*later.Task {
	return []*later.Task{
		&task64, &task65, &task66, &task67,
	}
}
