// SPDX-License-Identifier: Apache-2.0

package toolcall

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// maxPicture is the largest picture that is shown as one.
const maxPicture = 4 << 20

// Picture is a picture of a kind that models take.
type Picture struct {
	Data []byte
	Kind string // media type
}

// Shown is an answer as a model reads it: as text, and the pictures in it.
func (a *Answer) Shown() (text string, pictures []Picture) {
	text, picture := a.shown()
	if picture != nil {
		return text, []Picture{*picture}
	}
	return text, a.Pictures
}

func (a *Answer) shown() (text string, picture *Picture) {
	out := a.Output
	if status, ok := out["status"].(int); ok && a.Result == nil {
		return shownHTTP(status, out)
	}
	if a.Result == nil {
		content, _ := out["content"].(string)
		if out["encoding"] == "base64" {
			if picture = pictureOf(content); picture != nil {
				return fmt.Sprintf("%v, %v bytes", out["path"], out["size"]), picture
			}
		}
		if out["encoding"] == "text" {
			return content, nil
		}
		if _, ok := out["patch"]; ok {
			return shownSet(out), nil
		}
		b, _ := json.Marshal(out) // it was made of JSON's types
		return string(b), nil
	}
	var b strings.Builder
	for _, stream := range []string{"stdout", "stderr"} {
		s, _ := out[stream].(string)
		if out[stream+"_encoding"] == "base64" {
			if p := pictureOf(s); p != nil {
				picture, s = p, "(a picture)"
			} else {
				s = fmt.Sprintf("(%d bytes that are no text)", base64.StdEncoding.DecodedLen(len(s)))
			}
		}
		if s == "" {
			continue
		}
		if stream == "stderr" {
			fmt.Fprintf(&b, "[stderr]\n")
		}
		b.WriteString(s)
		if !strings.HasSuffix(s, "\n") {
			b.WriteByte('\n')
		}
	}
	shownResults(&b, out)
	b.WriteString("[" + howEnded(out) + "]")
	return b.String(), picture
}

// shownResults are what a cell showed.
func shownResults(b *strings.Builder, out map[string]any) {
	results, _ := out["results"].([]any)
	for _, r := range results {
		one, _ := r.(map[string]any)
		text, _ := one["text"].(string)
		if text == "" {
			text = fmt.Sprintf("(%v)", one["forms"])
		}
		b.WriteString(strings.TrimSuffix(text, "\n") + "\n")
	}
	if files, ok := out["files"].([]any); ok {
		fmt.Fprintf(b, "[files made or changed: %v]\n", files)
	}
}

// shownHTTP is the answer to a declared request.
func shownHTTP(status int, out map[string]any) (text string, picture *Picture) {
	text = fmt.Sprintf("[HTTP status %d", status)
	headers, _ := out["headers"].(map[string]any)
	for _, name := range []string{"content-type", "location", "retry-after"} {
		if v, ok := headers[name]; ok {
			text += fmt.Sprintf("; %s: %v", name, v)
		}
	}
	if out["truncated"] == true {
		text += "; the body is longer"
	}
	body, _ := out["body"].(string)
	if out["encoding"] == "base64" {
		if picture = pictureOf(body); picture != nil {
			return text + "; a picture]", picture
		}
		return fmt.Sprintf("%s; %d bytes that are no text]", text, base64.StdEncoding.DecodedLen(len(body))), nil
	}
	return text + "]\n" + body, nil
}

// howEnded says in a few words how a program ended.
func howEnded(out map[string]any) string {
	parts := []string{fmt.Sprint(out["status"])}
	for _, key := range []string{"exit_code", "signal", "resource", "reason", "hint"} {
		if v, ok := out[key]; ok {
			parts = append(parts, fmt.Sprintf("%s: %v", strings.ReplaceAll(key, "_", " "), v))
		}
	}
	if kept, ok := out["changes"].(map[string]any); ok {
		parts = append(parts, shownKept(kept))
	}
	if cut, ok := out["truncated"]; ok {
		parts = append(parts, fmt.Sprintf("cut: %v", cut))
	}
	if at, ok := out["truncated_at"]; ok {
		parts = append(parts, fmt.Sprintf("missing after: %v", at))
	}
	return strings.Join(parts, "; ")
}

// pictureOf is base64 as a picture, if it is one of those that models take.
func pictureOf(content string) *Picture {
	b, err := base64.StdEncoding.DecodeString(content)
	if err != nil || len(b) > maxPicture {
		return nil
	}
	switch kind := http.DetectContentType(b); kind {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return &Picture{b, kind}
	}
	return nil
}
