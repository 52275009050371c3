// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // read
	"image/png"
	"strings"
)

const (
	// maxPixels is how large a picture may be that is shown or saved.
	maxPixels = 16 << 20
	// kittyChunk is how much of a picture one message of kitty's protocol has.
	kittyChunk = 4096
)

// cleanPicture is a picture from a sandbox, in base64, written anew: no terminal and no viewer
// has to read what code inside has made.
func cleanPicture(text string) ([]byte, error) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("it is not base64")
	}
	c, _, err := image.DecodeConfig(bytes.NewReader(b))
	if err != nil {
		return nil, errors.New("it cannot be read")
	}
	if c.Width <= 0 || c.Height <= 0 || c.Width > maxPixels/c.Height {
		return nil, fmt.Errorf("it has %d×%d pixels, which is too many", c.Width, c.Height)
	}
	p, _, err := image.Decode(bytes.NewReader(b))
	if err != nil {
		return nil, errors.New("it cannot be read")
	}
	var out bytes.Buffer
	err = png.Encode(&out, p)
	return out.Bytes(), err
}

// picturesOf is how the terminal of an environment shows pictures; nil is that it does not.
func picturesOf(env func(string) string) func(png []byte) string {
	program := env("TERM_PROGRAM")
	switch {
	case env("TMUX") != "" || strings.HasPrefix(env("TERM"), "screen"):
		return nil // which would have to be told to let it through
	case env("TERM") == "xterm-kitty" || env("KITTY_WINDOW_ID") != "" || program == "ghostty" || env("TERM") == "xterm-ghostty":
		return kitty
	case program == "iTerm.app" || env("LC_TERMINAL") == "iTerm2" || program == "WezTerm":
		return iTerm
	}
	return nil
}

// kitty is a picture in kitty's graphics protocol.
func kitty(png []byte) string {
	var out strings.Builder
	text, head := base64.StdEncoding.EncodeToString(png), "f=100,a=T,q=2,"
	for text != "" {
		n, more := min(kittyChunk, len(text)), 0
		if n < len(text) {
			more = 1
		}
		fmt.Fprintf(&out, "\x1b_G%sm=%d;%s\x1b\\", head, more, text[:n])
		text, head = text[n:], ""
	}
	return out.String()
}

// iTerm is a picture in iTerm2's protocol.
func iTerm(png []byte) string {
	return fmt.Sprintf("\x1b]1337;File=inline=1;size=%d:%s\a", len(png), base64.StdEncoding.EncodeToString(png))
}
