// SPDX-License-Identifier: Apache-2.0

//go:build linux

package guest_test

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/guest/wire"
)

// layout is a stream of what is put in place.
func layout(t *testing.T, all ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, hdr := range all {
		content := hdr.Uname // a file's, in these tests
		hdr.Uname, hdr.Size = "", 0
		if hdr.Typeflag == tar.TypeReg {
			hdr.Size = int64(len(content))
		}
		if err := w.WriteHeader(&hdr); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)[:hdr.Size]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestPlace(t *testing.T) {
	c, ctx := newClient(t), t.Context()
	output(t, c, "mkdir -p w/gone/deep w/ro w/was/dir && cd w && echo old >f && echo x >gone/deep/x && echo x >mode && ln -s f was/dir/l && echo x >file && chmod 500 ro")
	removal := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeChar} }
	stream := layout(t,
		tar.Header{Name: "f", Typeflag: tar.TypeReg, Mode: 0o751, Uname: "new"},
		tar.Header{Name: "file", Typeflag: tar.TypeDir, Mode: 0o500},
		tar.Header{Name: "file/in", Typeflag: tar.TypeReg, Mode: 0o400, Uname: "in"},
		removal("gone"), removal("gone/deep"), removal("gone/deep/x"), removal("never"),
		tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/etc"},
		tar.Header{Name: "mode", Typeflag: tar.TypeReg, Mode: 0o755, Format: tar.FormatPAX, PAXRecords: map[string]string{wire.PlaceMode: "1"}},
		tar.Header{Name: "nothere", Typeflag: tar.TypeReg, Mode: 0o755, Format: tar.FormatPAX, PAXRecords: map[string]string{wire.PlaceMode: "1"}},
		tar.Header{Name: "ro", Typeflag: tar.TypeDir, Mode: 0o555},
		tar.Header{Name: "ro/in", Typeflag: tar.TypeReg, Mode: 0o644, Uname: "ro"},
		tar.Header{Name: "was", Typeflag: tar.TypeReg, Mode: 0o644, Uname: "was"},
	)
	if err := c.Place(ctx, "/home/user/w", stream); err != nil {
		t.Fatal(err)
	}
	const want = "new|in|x|ro|was|/etc\nf 751\nfile 500\nfile/in 400\nmode 755\nro 555\nro/in 644\nwas 644\nf file link mode ro was"
	if got := output(t, c, "cd w; echo $(cat f)'|'$(cat file/in)'|'$(cat mode)'|'$(cat ro/in)'|'$(cat was)'|'$(readlink link); stat -c '%n %a' f file file/in mode ro ro/in was; echo $(ls)"); got != want {
		t.Errorf("it is\n%s\nand not\n%s", got, want)
	}
	output(t, c, "chmod -R u+w w")
}

func TestPlaceRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, why string
		hdr       tar.Header
	}{
		{"through a link", "not a directory", tar.Header{Name: "out/x", Typeflag: tar.TypeReg, Mode: 0o644, Uname: "evil"}},
		{"a removal through a link", "", tar.Header{Name: "out/kept", Typeflag: tar.TypeChar}},
		{"a mode through a link", "", tar.Header{Name: "out/kept", Typeflag: tar.TypeReg, Mode: 0o777, Format: tar.FormatPAX, PAXRecords: map[string]string{wire.PlaceMode: "1"}}},
		{"the mode of a link", "symbolic links", tar.Header{Name: "leaf", Typeflag: tar.TypeReg, Mode: 0o777, Format: tar.FormatPAX, PAXRecords: map[string]string{wire.PlaceMode: "1"}}},
		{"above", "is no name", tar.Header{Name: "../x", Typeflag: tar.TypeReg, Mode: 0o644}},
		{"from the top", "is no name", tar.Header{Name: "/x", Typeflag: tar.TypeReg, Mode: 0o644}},
		{"the directory itself", "is no name", tar.Header{Name: ".", Typeflag: tar.TypeDir, Mode: 0o755}},
		{"a device", "of a type", tar.Header{Name: "x", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
		{"a second name", "of a type", tar.Header{Name: "x", Typeflag: tar.TypeLink, Linkname: "y"}},
		{"too deep", "is deeper", tar.Header{Name: strings.Repeat("d/", 300) + "x", Typeflag: tar.TypeReg}},
		{"not the user's", "permission denied", tar.Header{Name: "root/x", Typeflag: tar.TypeReg, Mode: 0o644}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, ctx := newClient(t), t.Context()
			output(t, c, "mkdir -p w other && echo kept >other/kept && ln -s ../other w/out && ln -s ../other/kept w/leaf")
			root := "/home/user/w"
			if strings.HasPrefix(tt.hdr.Name, "root/") {
				root, tt.hdr.Name = "/etc", "caisson-test"
			}
			err := c.Place(ctx, root, layout(t, tt.hdr))
			if tt.why == "" && err != nil || tt.why != "" && (err == nil || !strings.Contains(err.Error(), tt.why)) {
				t.Errorf("%v", err)
			}
			if got := output(t, c, "ls other; stat -c %a other/kept; cat other/kept; ls /home/user"); got != "kept\n644\nkept\nother\nw" {
				t.Errorf("the other directory has\n%s", got)
			}
		})
	}
	t.Run("it may be removed itself", func(t *testing.T) {
		c := newClient(t)
		output(t, c, "mkdir -p w other && echo kept >other/kept && ln -s ../other w/out")
		if err := c.Place(t.Context(), "/home/user/w", layout(t, tar.Header{Name: "out", Typeflag: tar.TypeChar})); err != nil {
			t.Fatal(err)
		}
		if got := output(t, c, "ls w other"); got != "other:\nkept\n\nw:" {
			t.Errorf("there is\n%s", got)
		}
	})
}
