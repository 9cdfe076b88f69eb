// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"bytes"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	texttemplate "text/template"
	"text/template/parse"

	"sluice.dev/api/v1alpha1"
)

// Templates are the texts of mails: those that are built in, and those that an
// administrator put in their place. The zero value and nil are the ones built in.
type Templates struct{ overrides map[string]templateExecutor }

// templateExecutor is a template of either kind.
type templateExecutor interface {
	Execute(w io.Writer, data any) error
}

// BuiltinTemplates are the texts that come with the program.
func BuiltinTemplates() *Templates { return &Templates{} }

// The forms of a text, as the ends of their keys.
const (
	formSubject = "subject"
	formText    = "txt"
	formHTML    = "html"
)

func templateKey(kind v1alpha1.NoticeKind, language v1alpha1.Language, form string) string {
	return fmt.Sprintf("%s.%s.%s", kind, language, form)
}

// maxOutputBytes is how large a text of a replaced template may be: 256 KiB.
const maxOutputBytes = 256 << 10

var errOutputTooLong = errors.New("it makes a text of more than 256 KiB; that is as much as a mail may have")

// limitedBuffer holds so much and no more.
type limitedBuffer struct {
	bytes.Buffer
	limit int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.limit {
		return 0, errOutputTooLong
	}
	return b.Buffer.Write(p)
}

func (t *Templates) renderSubject(p *TemplateData) (string, error) {
	said, ok, err := t.renderOverride(p, formSubject)
	if !ok {
		c := noticeContents()[contentKey{v1alpha1.NoticeKind(p.Kind), v1alpha1.Language(p.Language)}]
		said, err = c.renderBlock("subject", p)
	}
	return singleLine(said), err
}

func (t *Templates) renderText(p *TemplateData) (string, error) {
	said, ok, err := t.renderOverride(p, formText)
	if !ok {
		said, err = executeTemplate(builtinLayouts().text, p, math.MaxInt)
	}
	return normalizeNewlines(said), err
}

func (t *Templates) renderHTML(p *TemplateData) (string, error) {
	said, ok, err := t.renderOverride(p, formHTML)
	if !ok {
		said, err = executeTemplate(builtinLayouts().html, p, math.MaxInt)
	}
	return normalizeNewlines(said), err
}

// renderOverride is what a replaced template says; false where there is none.
func (t *Templates) renderOverride(p *TemplateData, form string) (said string, ok bool, err error) {
	if t == nil {
		return "", false, nil
	}
	file := templateKey(v1alpha1.NoticeKind(p.Kind), v1alpha1.Language(p.Language), form)
	r, ok := t.overrides[file]
	if !ok {
		return "", false, nil
	}
	if said, err = executeTemplate(r, p, maxOutputBytes); err != nil {
		return "", true, fmt.Errorf("template %s: %w", file, err)
	}
	return said, true, nil
}

func executeTemplate(r templateExecutor, p *TemplateData, limit int) (string, error) {
	b := limitedBuffer{limit: limit}
	if err := r.Execute(&b, p); err != nil {
		return "", err
	}
	return b.String(), nil
}

// normalizeNewlines has line feeds alone, and no other control characters than these and tabs.
func normalizeNewlines(s string) string {
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.ToValidUTF8(s, "\ufffd"))
	s = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, s)
	return strings.TrimSpace(s) + "\n"
}

type layout struct{ text, html templateExecutor }

var builtinLayouts = sync.OnceValue(func() layout {
	read := func(name string) string {
		raw, _ := texts.ReadFile("texts/" + name) // embedded: it is there
		return string(raw)
	}
	return layout{
		text: texttemplate.Must(texttemplate.New("layout.txt").Funcs(layoutFuncs).Parse(read("layout.txt.tmpl"))),
		html: htmltemplate.Must(htmltemplate.New("layout.html").Parse(read("layout.html.tmpl"))),
	}
})

// maxTemplateBytes is how large one template may be: 64 KiB.
const maxTemplateBytes = 64 << 10

// ParseTemplates reads templates that replace those built in. A file's name says what it
// replaces: <Kind>.<de|en>.subject, .txt or .html. What is not replaced stays as it is.
//
// A template is text/template (subject, txt) or html/template (html) over a [Page]. It
// has if, with, range, variables, comparisons and len, and no other functions: so it ends
// soon, whatever is in it. Each is tried on every example of its kind and language before
// any is accepted. An error names the file, the line and what is allowed.
func ParseTemplates(files map[string]string) (*Templates, error) {
	t := &Templates{overrides: map[string]templateExecutor{}}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		form, err := parseTemplateKey(file)
		if err != nil {
			return nil, err
		}
		if t.overrides[file], err = compileTemplate(file, form, files[file]); err != nil {
			return nil, err
		}
	}
	if err := t.validateExamples(); err != nil {
		return nil, err
	}
	return t, nil
}

// parseTemplateKey is the form of what a file replaces.
func parseTemplateKey(file string) (form string, err error) {
	parts := strings.Split(file, ".")
	if len(parts) == 3 && slices.Contains([]string{formSubject, formText, formHTML}, parts[2]) {
		if _, ok := noticeContents()[contentKey{v1alpha1.NoticeKind(parts[0]), v1alpha1.Language(parts[1])}]; ok {
			return parts[2], nil
		}
	}
	return "", fmt.Errorf("template %q: its name must be <Kind>.<de|en>.<subject|txt|html>, such as WorkloadEnding.de.txt; kinds are %s", truncate(sanitize(file), maxNameRunes), listKinds())
}

func listKinds() string {
	seen := map[string]bool{}
	for k := range noticeContents() {
		seen[string(k.kind)] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), ", ")
}

// compileTemplate reads one template and looks through it, before anything is executed.
func compileTemplate(file, form, text string) (templateExecutor, error) {
	if len(text) > maxTemplateBytes {
		return nil, fmt.Errorf("template %s: it has %d bytes; at most %d are allowed", file, len(text), maxTemplateBytes)
	}
	source, err := texttemplate.New(file).Option("missingkey=zero").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", err, allowedSyntax)
	}
	for _, t := range source.Templates() {
		if t.Name() != file {
			return nil, fmt.Errorf("template %s: it defines %q, and may define no templates (%s)", file, t.Name(), allowedSyntax)
		}
	}
	if source.Tree == nil || parse.IsEmptyTree(source.Root) {
		return nil, fmt.Errorf("template %s: it is empty; leave the key out for the text that is built in", file)
	}
	if err := validateTemplate(source.Tree); err != nil {
		return nil, err
	}
	if form != formHTML {
		return source, nil
	}
	page, err := htmltemplate.New(file).Option("missingkey=zero").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", err, allowedSyntax)
	}
	return page, nil
}

// validateExamples renders every example of what is replaced. A template must say the deadline of
// a kind that has one: its day and its time, as the page has them.
func (t *Templates) validateExamples() error {
	for _, l := range Examples() {
		l.Templates = t
		kind, language := l.Notice.Spec.Kind, languageOf(l.Notice)
		page, err := l.templateData()
		if err != nil {
			return err
		}
		for form, render := range map[string]func(*TemplateData) (string, error){formSubject: t.renderSubject, formText: t.renderText, formHTML: t.renderHTML} {
			file := templateKey(kind, language, form)
			if t.overrides[file] == nil {
				continue
			}
			said, err := render(page)
			if err != nil {
				return fmt.Errorf("%w (tried on the example %s; %s)", err, l.Notice.Name, allowedSyntax)
			}
			if strings.TrimSpace(said) == "" {
				return fmt.Errorf("template %s: it says nothing in the example %s", file, l.Notice.Name)
			}
			if form != formSubject && kindsWithDeadline[kind] && !containsTime(said, page.Deadline) {
				return fmt.Errorf("template %s: it does not say when: a %s needs its deadline, as {{.Deadline.Local}} or {{.Deadline.At}}, or {{.Deadline.Date}} and {{.Deadline.Time}} (tried on the example %s)", file, kind, l.Notice.Name)
			}
		}
	}
	return nil
}

func containsTime(text string, m *LocalizedTime) bool {
	// The German "am Montag, dem 23. November 2026" has the day too, in other words.
	day := strings.Contains(text, m.Date) || strings.Contains(text, m.At) || strings.Contains(text, m.Brief)
	return day && (strings.Contains(text, m.Time) || strings.Contains(text, m.Brief))
}
