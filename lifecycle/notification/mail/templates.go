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

// Templates holds the texts of mails: the built-in ones, and an administrator's overrides. The
// zero value and nil are the built-in ones.
type Templates struct{ overrides map[string]templateExecutor }

// templateExecutor is a text or HTML template.
type templateExecutor interface {
	Execute(w io.Writer, data any) error
}

// BuiltinTemplates returns the built-in texts.
func BuiltinTemplates() *Templates { return &Templates{} }

// The forms of a text, the suffixes of template keys.
const (
	formSubject = "subject"
	formText    = "txt"
	formHTML    = "html"
)

func templateKey(kind v1alpha1.NoticeKind, language v1alpha1.Language, form string) string {
	return fmt.Sprintf("%s.%s.%s", kind, language, form)
}

// maxOutputBytes bounds the output of an override: 256 KiB.
const maxOutputBytes = 256 << 10

var errOutputTooLong = errors.New("its output exceeds 256 KiB")

// limitedBuffer is a buffer of limited size.
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
	output, ok, err := t.renderOverride(p, formSubject)
	if !ok {
		c := noticeContents()[contentKey{v1alpha1.NoticeKind(p.Kind), v1alpha1.Language(p.Language)}]
		output, err = c.renderBlock("subject", p)
	}
	return subjectLine(output), err
}

func (t *Templates) renderText(p *TemplateData) (string, error) {
	output, ok, err := t.renderOverride(p, formText)
	if !ok {
		output, err = executeTemplate(builtinLayouts().text, p, math.MaxInt)
	}
	return normalizeNewlines(output), err
}

func (t *Templates) renderHTML(p *TemplateData) (string, error) {
	output, ok, err := t.renderOverride(p, formHTML)
	if !ok {
		output, err = executeTemplate(builtinLayouts().html, p, math.MaxInt)
	}
	return normalizeNewlines(output), err
}

// renderOverride renders an override; false if there is none.
func (t *Templates) renderOverride(p *TemplateData, form string) (output string, ok bool, err error) {
	if t == nil {
		return "", false, nil
	}
	file := templateKey(v1alpha1.NoticeKind(p.Kind), v1alpha1.Language(p.Language), form)
	r, ok := t.overrides[file]
	if !ok {
		return "", false, nil
	}
	if output, err = executeTemplate(r, p, maxOutputBytes); err != nil {
		return "", true, fmt.Errorf("template %s: %w", file, err)
	}
	return output, true, nil
}

func executeTemplate(r templateExecutor, p *TemplateData, limit int) (string, error) {
	b := limitedBuffer{limit: limit}
	if err := r.Execute(&b, p); err != nil {
		return "", err
	}
	return b.String(), nil
}

// normalizeNewlines converts line breaks to LF and removes control characters except tabs.
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
	mustRead := func(name string) string {
		raw, _ := texts.ReadFile("texts/" + name) // embedded files exist
		return string(raw)
	}
	return layout{
		text: texttemplate.Must(texttemplate.New("layout.txt").Funcs(layoutFuncs).Parse(mustRead("layout.txt.tmpl"))),
		html: htmltemplate.Must(htmltemplate.New("layout.html").Parse(mustRead("layout.html.tmpl"))),
	}
})

// maxTemplateBytes bounds one template: 64 KiB.
const maxTemplateBytes = 64 << 10

// ParseTemplates parses overrides of the built-in templates. A file is named after the text that
// it replaces: <Kind>.<de|en>.subject, .txt or .html.
//
// A template is text/template (subject, txt) or html/template (html) over [TemplateData]. It may use
// if, with, range, variables, comparisons and len, and no other functions, so its execution time is
// bounded. All are tested on each example of their kind and language. An error names the file, the
// line and the allowed syntax.
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

// parseTemplateKey returns the form that a file replaces.
func parseTemplateKey(file string) (form string, err error) {
	parts := strings.Split(file, ".")
	if len(parts) == 3 && slices.Contains([]string{formSubject, formText, formHTML}, parts[2]) {
		if _, ok := noticeContents()[contentKey{v1alpha1.NoticeKind(parts[0]), v1alpha1.Language(parts[1])}]; ok {
			return parts[2], nil
		}
	}
	return "", fmt.Errorf(
		"template %q: its name must be <Kind>.<de|en>.<subject|txt|html>, such as WorkloadEnding.de.txt; kinds are %s",
		truncate(sanitize(file), maxNameRunes), listKinds(),
	)
}

func listKinds() string {
	kinds := map[string]bool{}
	for k := range noticeContents() {
		kinds[string(k.kind)] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")
}

// compileTemplate parses and validates one template without executing it.
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
		return nil, fmt.Errorf("template %s: it is empty; remove the key to use the built-in text", file)
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

// validateExamples renders the examples of all overrides. A template of a kind with a deadline must
// show its day and time.
func (t *Templates) validateExamples() error {
	for _, l := range Examples() {
		l.Templates = t
		kind, language := l.Notice.Spec.Kind, languageOf(l.Notice)
		page, err := l.templateData(true)
		if err != nil {
			return err
		}
		renderers := map[string]func(*TemplateData) (string, error){
			formSubject: t.renderSubject, formText: t.renderText, formHTML: t.renderHTML,
		}
		for form, render := range renderers {
			file := templateKey(kind, language, form)
			if t.overrides[file] == nil {
				continue
			}
			output, err := render(page)
			if err != nil {
				return fmt.Errorf("%w (tried on the example %s; %s)", err, l.Notice.Name, allowedSyntax)
			}
			if strings.TrimSpace(output) == "" {
				return fmt.Errorf("template %s: its output is empty for the example %s", file, l.Notice.Name)
			}
			if form != formSubject && kindsWithDeadline[kind] && !containsTime(output, page.Deadline) {
				return fmt.Errorf(
					"template %s: it does not show the deadline, which a %s requires, as {{.Deadline.Local}} or {{.Deadline.At}}, "+
						"or {{.Deadline.Date}} and {{.Deadline.Time}} (tried on the example %s)",
					file, kind, l.Notice.Name,
				)
			}
		}
	}
	return nil
}

func containsTime(text string, m *LocalizedTime) bool {
	// The German At, "am Montag, dem 23. November 2026", does not contain Date.
	day := strings.Contains(text, m.Date) || strings.Contains(text, m.At) || strings.Contains(text, m.Brief)
	return day && (strings.Contains(text, m.Time) || strings.Contains(text, m.Brief))
}
