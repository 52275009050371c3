// SPDX-License-Identifier: Apache-2.0

package template

import (
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/caisson-run/caisson/image/reference"
)

// from begins a stage.
func (f *dockerfile) from(c *instructions.Stage, line int) error {
	f.endStage()
	name, err := f.expander.word(c.BaseName, f.global)
	if err != nil {
		return err
	}
	if name == "" {
		return invalid("give the ARG that it names a default, or a value", "FROM %s names no image", c.BaseName)
	}
	if err := f.platform(c.Platform); err != nil {
		return err
	}
	s := Stage{Name: strings.ToLower(c.Name), Line: line}
	if at := f.named(name); at >= 0 {
		s.From = Base{Kind: Earlier, Stage: at}
		f.config = f.configs[at].clone()
	} else {
		if s.From, err = imageBase(name); err != nil {
			return err
		}
		f.config = f.base(s.From).clone()
	}
	if f.env, err = baseEnv(f.config.Env); err != nil {
		return err
	}
	f.config.Env = f.env
	f.cmdSet = false
	f.stages = append(f.stages, s)
	return nil
}

// endStage keeps what the stage comes to, for stages that build on it.
func (f *dockerfile) endStage() {
	if len(f.stages) > 0 {
		f.configs = append(f.configs, f.config)
	}
}

// baseEnv are the variables of a base, each name once.
func baseEnv(env []string) (v variables, err error) {
	for _, nv := range env {
		name, value, _ := strings.Cut(nv, "=")
		if v, err = v.set(name, value); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// named is the latest stage with a name, and -1 for none.
func (f *dockerfile) named(name string) int {
	for i, s := range slices.Backward(f.stages) {
		if s.Name != "" && strings.EqualFold(s.Name, name) {
			return i
		}
	}
	return -1
}

// imageBase reads what FROM and --from name where it is no stage. A path of the host is
// none of a Dockerfile's.
func imageBase(name string) (Base, error) {
	if name == "scratch" {
		return Base{Kind: Scratch}, nil
	}
	ref, err := reference.Parse(name)
	if err != nil {
		return Base{}, err
	}
	if rest, ok := strings.CutPrefix(name, "template:"); ok {
		return Base{Kind: Template, Name: rest}, nil
	}
	if ref.Kind != reference.Registry {
		return Base{}, invalid("name an image of a registry, an earlier stage, template:NAME, or scratch and COPY", "%s is a path of this host, which a template cannot begin with", quote(name))
	}
	return Base{Kind: Image, Name: name}, nil
}

// platform refuses another one than the template's.
func (f *dockerfile) platform(text string) error {
	want, err := f.expander.word(text, f.global)
	if err != nil {
		return err
	}
	if own := "linux/" + f.Arch; want != "" && want != own && !(f.Arch == "arm64" && want == own+"/v8") {
		return notCarried("drop it, or build on a machine of that kind", "FROM --platform=%s on %s", want, own)
	}
	return nil
}

// source is where COPY --from takes files.
func (f *dockerfile) source(from string) (stage int, image string, err error) {
	if from == "" {
		return ContextDir, "", nil
	}
	self := len(f.stages) - 1
	at := f.named(from)
	if n, err := strconv.Atoi(from); err == nil && at < 0 {
		at = n
		if n < 0 || n > self {
			return 0, "", invalid("stages are counted from 0", "there is no earlier stage %s", quote(from))
		}
	}
	if at == self {
		return 0, "", invalid("name an earlier stage", "COPY --from=%s names its own stage", from)
	}
	if at >= 0 {
		return at, "", nil
	}
	base, err := imageBase(from)
	if err != nil {
		return 0, "", err
	}
	if base.Kind != Image {
		return 0, "", invalid("name a stage or an image", "there is nothing to copy from %s", quote(from))
	}
	return ContextDir, base.Name, nil
}
