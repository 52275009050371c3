// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/template"
)

// newBuild begins a build of a template. How large its sandboxes are is the key's profile
// to say, so that cpuCount and memoryMB decide nothing.
func (s *Server) newBuild(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	var q struct {
		Name          string   `json:"name"`
		Alias         string   `json:"alias"` // of version 2
		Tags          []string `json:"tags"`
		TeamID        string   `json:"teamID"`
		CPUCount      int      `json:"cpuCount"`
		MemoryMB      int      `json:"memoryMB"`
		MinFreeDiskMB int      `json:"minFreeDiskMb"`
	}
	if err := readBody(w, r, &q, false); err != nil {
		return err
	}
	if q.Name == "" {
		q.Name = q.Alias
	}
	b, err := s.o.Sandboxes.TemplatesOf(k).Begin(q.Name, q.Tags)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusAccepted, map[string]any{
		"templateID": b.Name, "buildID": b.ID, "public": false, "names": []string{b.Name}, "tags": b.Tags, "aliases": []string{b.Name},
	})
	return nil
}

// uploadPath is where archives are sent, before their token.
const uploadPath = "/templates/uploads/"

// fileLink says where the files of a COPY are sent, where they are not here.
func (s *Server) fileLink(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	token, present, err := s.o.Sandboxes.TemplatesOf(k).Ticket(r.PathValue("hash"))
	if err != nil {
		return err
	}
	a := map[string]any{"present": present}
	if !present {
		scheme := "http"
		if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
			scheme = "https"
		}
		a["url"] = scheme + "://" + r.Host + uploadPath + token
	}
	writeJSON(w, http.StatusCreated, a)
	return nil
}

// upload takes an archive. Its address is the right to send it, once.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(uploadTimeout))
	defer rc.SetReadDeadline(time.Time{})
	if err := s.o.Sandboxes.Upload(r.PathValue("token"), http.MaxBytesReader(w, r.Body, persistent.MaxUpload)); err != nil {
		writeAPIError(w, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// uploadTimeout is how long E2B's clients take to send an archive at most.
const uploadTimeout = time.Hour

// startBuild starts one. It answers before any of its steps is run.
func (s *Server) startBuild(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	var q struct {
		FromImage         string             `json:"fromImage"`
		FromTemplate      string             `json:"fromTemplate"`
		FromImageRegistry *registryLogin     `json:"fromImageRegistry"`
		Steps             []template.RawStep `json:"steps"`
		StartCmd          string             `json:"startCmd"`
		ReadyCmd          string             `json:"readyCmd"`
		Force             bool               `json:"force"`
	}
	if err := readBody(w, r, &q, false); err != nil {
		return err
	}
	wish := persistent.BuildWish{Steps: q.Steps, Start: q.StartCmd, Ready: q.ReadyCmd, NoCache: q.Force}
	var err error
	if wish.Login, err = q.FromImageRegistry.login(); err != nil {
		return err
	}
	switch {
	case (q.FromImage == "") == (q.FromTemplate == ""):
		return &apiError{http.StatusBadRequest, "name one of fromImage and fromTemplate"}
	case q.FromTemplate != "" && wish.Login != nil:
		return &apiError{http.StatusBadRequest, "fromImageRegistry is for fromImage"}
	case q.FromTemplate != "":
		wish.From = template.Base{Kind: template.Template, Name: q.FromTemplate}
	default:
		wish.From = template.Base{Kind: template.Image, Name: q.FromImage}
	}
	if err := s.o.Sandboxes.TemplatesOf(k).Run(r.PathValue("id"), r.PathValue("build"), wish); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// registryLogin is what a client's registry is asked with.
type registryLogin struct {
	Type               string `json:"type"`
	Username           string `json:"username"`
	Password           string `json:"password"`
	ServiceAccountJSON string `json:"serviceAccountJson"` // of Google's
	AWSAccessKeyID     string `json:"awsAccessKeyId"`
	AWSSecretAccessKey string `json:"awsSecretAccessKey"`
	AWSRegion          string `json:"awsRegion"`
}

// login is nil where there is none. Amazon's registries take a password that their API gives
// for keys, which is not asked here.
func (l *registryLogin) login() (*image.Login, error) {
	if l == nil {
		return nil, nil
	}
	out := &image.Login{Username: l.Username, Password: l.Password}
	switch l.Type {
	case "registry":
	case "gcp":
		out = &image.Login{Username: "_json_key", Password: l.ServiceAccountJSON}
	case "aws":
		return nil, notCarried("fromImageRegistry of type aws (send type registry, the user AWS and what aws ecr get-login-password says)")
	default:
		return nil, &apiError{http.StatusBadRequest, "fromImageRegistry has an unknown type"}
	}
	if out.Username == "" || out.Password == "" {
		return nil, &apiError{http.StatusBadRequest, "fromImageRegistry lacks a user or a password"}
	}
	return out, nil
}

// buildLine is a line of a build's log as clients read it.
type buildLine struct {
	Timestamp string `json:"timestamp"`
	Level     string `json:"level"`
	Message   string `json:"message"`
	Step      string `json:"step,omitempty"`
}

func buildLines(from []persistent.BuildLine) (entries []buildLine, texts []string) {
	entries, texts = []buildLine{}, []string{}
	for _, l := range from {
		entries = append(entries, buildLine{l.At.UTC().Format(time.RFC3339Nano), "info", l.Message, stepName(l.Step)})
		texts = append(texts, l.Message)
	}
	return entries, texts
}

// stepName is a step as clients count them: "base" is what comes before the first.
func stepName(n int) string {
	if n == 0 {
		return "base"
	}
	return strconv.Itoa(n)
}

// maxBuildLines are those of one answer.
const maxBuildLines = 100

// build is the one that a path names, with a part of its log.
func (s *Server) build(r *http.Request, k *persistent.Key) (*persistent.BuildRecord, []persistent.BuildLine, error) {
	b, err := s.o.Sandboxes.TemplatesOf(k).Build(r.PathValue("id"), r.PathValue("build"))
	if err != nil {
		return nil, nil, err
	}
	from, limit := 0, maxBuildLines
	for name, to := range map[string]*int{"logsOffset": &from, "cursor": &from, "limit": &limit} {
		if text := r.URL.Query().Get(name); text != "" {
			if *to, err = strconv.Atoi(text); err != nil || *to < 0 {
				return nil, nil, &apiError{http.StatusBadRequest, name + " cannot be read"}
			}
		}
	}
	lines := b.Log[min(from, len(b.Log)):]
	return b, lines[:min(limit, maxBuildLines, len(lines))], nil
}

func (s *Server) buildStatus(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	b, lines, err := s.build(r, k)
	if err != nil {
		return err
	}
	entries, texts := buildLines(lines)
	a := map[string]any{"templateID": b.Name, "buildID": b.ID, "status": b.State, "logEntries": entries, "logs": texts}
	if b.State == persistent.BuildFailed {
		a["reason"] = map[string]any{"message": buildFailure(b), "step": stepName(b.Step), "logEntries": linesOf(b)}
	}
	writeJSON(w, http.StatusOK, a)
	return nil
}

// linesOf are the last ones of the step that failed.
func linesOf(b *persistent.BuildRecord) []buildLine {
	var of []persistent.BuildLine
	for _, l := range b.Log {
		if l.Step == b.Step {
			of = append(of, l)
		}
	}
	entries, _ := buildLines(of[max(0, len(of)-maxBuildLines):])
	return entries
}

func (s *Server) buildLogs(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	_, lines, err := s.build(r, k)
	if err != nil {
		return err
	}
	entries, _ := buildLines(lines)
	writeJSON(w, http.StatusOK, map[string]any{"logs": entries})
	return nil
}

// buildFailure is why a build failed. Of a user that is not there clients look at the text.
func buildFailure(b *persistent.BuildRecord) string {
	var e *sandbox.Error
	if errors.As(b.Err, &e) && strings.HasPrefix(e.Op, "user ") && b.Step > 0 && b.Step <= len(b.Steps) && b.Steps[b.Step-1].Type == "RUN" {
		step, user := b.Steps[b.Step-1], "user"
		for _, before := range b.Steps[:b.Step-1] {
			if before.Type == "USER" && len(before.Args) == 1 {
				user = before.Args[0]
			}
		}
		if len(step.Args) > 1 && step.Args[1] != "" {
			user = step.Args[1]
		}
		return fmt.Sprintf("failed to run command '%s': command failed: unauthenticated: invalid username: '%s'", step.Args[0], user)
	}
	return asAPI(b.Err).Message
}

// tagTemplate gives a template further tags.
func (s *Server) tagTemplate(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	var q struct {
		Target string   `json:"target"`
		Tags   []string `json:"tags"`
	}
	if err := readBody(w, r, &q, false); err != nil {
		return err
	}
	t := s.o.Sandboxes.TemplatesOf(k)
	if err := t.Tag(q.Target, q.Tags); err != nil {
		return err
	}
	name, _, _ := strings.Cut(q.Target, ":")
	writeJSON(w, http.StatusCreated, map[string]any{"buildID": lastBuild(t, name), "tags": q.Tags})
	return nil
}

// untagTemplate takes tags away.
func (s *Server) untagTemplate(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	var q struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if err := readBody(w, r, &q, false); err != nil {
		return err
	}
	if len(q.Tags) == 0 || slices.Contains(q.Tags, "") {
		return &apiError{http.StatusBadRequest, "tags is missing"}
	}
	return noContent(w, s.o.Sandboxes.TemplatesOf(k).Untag(q.Name, q.Tags))
}

// templatePart answers with the tags of a template.
func (s *Server) templatePart(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	if r.PathValue("part") != "tags" {
		return &apiError{http.StatusNotFound, "there is nothing at this path"}
	}
	t := s.o.Sandboxes.TemplatesOf(k)
	list, err := t.List()
	if err != nil {
		return err
	}
	tags := []map[string]any{}
	for _, one := range list {
		if one.Name == r.PathValue("id") {
			tags = append(tags, map[string]any{"tag": one.Tag, "buildID": lastBuild(t, one.Name), "createdAt": one.Named.Format(time.RFC3339)})
		}
	}
	if len(tags) == 0 {
		return &apiError{http.StatusNotFound, "there is no such template"}
	}
	writeJSON(w, http.StatusOK, tags)
	return nil
}

// lastBuild is the last build of a template that is known.
func lastBuild(t *persistent.Templates, name string) string {
	if all := t.Builds(name); len(all) > 0 {
		return all[0].ID
	}
	return noBuild
}

// changeTemplate changes who sees a template: the operator alone shares one.
func (s *Server) changeTemplate(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	var q struct {
		Public bool `json:"public"`
	}
	if err := readBody(w, r, &q, true); err != nil {
		return err
	}
	if q.Public {
		return &apiError{http.StatusForbidden, "public: a template is its key's own; only the operator shares one of theirs, with caisson template share"}
	}
	t, err := s.named(r, "id", k)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"names": t.Names})
	return nil
}
