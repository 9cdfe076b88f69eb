// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"fmt"
	htmltemplate "html/template"
	"maps"
	"slices"
	"strings"
	texttemplate "text/template"
	"text/template/parse"

	"sluice.dev/api/v1alpha1"
)

// longestTemplate is how large one template may be: 64 KiB.
const longestTemplate = 64 << 10

// Parse reads templates that replace those built in. A file's name says what it
// replaces: <Kind>.<de|en>.subject, .txt or .html. What is not replaced stays as it is.
//
// A template is text/template (subject, txt) or html/template (html) over a [Page]. It
// has if, with, range, variables, comparisons and len, and no other functions: so it ends
// soon, whatever is in it. Each is tried on every example of its kind and language before
// any is accepted. An error names the file, the line and what is allowed.
func Parse(files map[string]string) (*Templates, error) {
	t := &Templates{replaced: map[string]renderer{}}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		form, err := readKey(file)
		if err != nil {
			return nil, err
		}
		if t.replaced[file], err = compile(file, form, files[file]); err != nil {
			return nil, err
		}
	}
	if err := t.try(); err != nil {
		return nil, err
	}
	return t, nil
}

// readKey is the form of what a file replaces.
func readKey(file string) (form string, err error) {
	parts := strings.Split(file, ".")
	if len(parts) == 3 && slices.Contains([]string{formSubject, formText, formHTML}, parts[2]) {
		if _, ok := contents()[contentKey{v1alpha1.NoticeKind(parts[0]), v1alpha1.Language(parts[1])}]; ok {
			return parts[2], nil
		}
	}
	return "", fmt.Errorf("template %q: its name must be <Kind>.<de|en>.<subject|txt|html>, such as WorkloadEnding.de.txt; kinds are %s", shorten(clean(file), nameLength), kindList())
}

func kindList() string {
	seen := map[string]bool{}
	for k := range contents() {
		seen[string(k.kind)] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), ", ")
}

// compile reads one template and looks through it, before anything is executed.
func compile(file, form, text string) (renderer, error) {
	if len(text) > longestTemplate {
		return nil, fmt.Errorf("template %s: it has %d bytes; at most %d are allowed", file, len(text), longestTemplate)
	}
	source, err := texttemplate.New(file).Option("missingkey=zero").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", err, allowed)
	}
	for _, t := range source.Templates() {
		if t.Name() != file {
			return nil, fmt.Errorf("template %s: it defines %q, and may define no templates (%s)", file, t.Name(), allowed)
		}
	}
	if source.Tree == nil || parse.IsEmptyTree(source.Root) {
		return nil, fmt.Errorf("template %s: it is empty; leave the key out for the text that is built in", file)
	}
	if err := inspect(source.Tree); err != nil {
		return nil, err
	}
	if form != formHTML {
		return source, nil
	}
	page, err := htmltemplate.New(file).Option("missingkey=zero").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", err, allowed)
	}
	return page, nil
}

// try renders every example of what is replaced. A template must say the deadline of
// a kind that has one: its day and its time, as the page has them.
func (t *Templates) try() error {
	for _, l := range Examples() {
		l.Templates = t
		kind, language := l.Notice.Spec.Kind, language(l.Notice)
		page, err := l.page()
		if err != nil {
			return err
		}
		for form, render := range map[string]func(*Page) (string, error){formSubject: t.subject, formText: t.text, formHTML: t.html} {
			file := key(kind, language, form)
			if t.replaced[file] == nil {
				continue
			}
			said, err := render(page)
			if err != nil {
				return fmt.Errorf("%w (tried on the example %s; %s)", err, l.Notice.Name, allowed)
			}
			if strings.TrimSpace(said) == "" {
				return fmt.Errorf("template %s: it says nothing in the example %s", file, l.Notice.Name)
			}
			if form != formSubject && dated[kind] && !says(said, page.Deadline) {
				return fmt.Errorf("template %s: it does not say when: a %s needs its deadline, as {{.Deadline.Local}} or {{.Deadline.At}}, or {{.Deadline.Date}} and {{.Deadline.Time}} (tried on the example %s)", file, kind, l.Notice.Name)
			}
		}
	}
	return nil
}

func says(text string, m *Moment) bool {
	// The German "am Montag, dem 23. November 2026" has the day too, in other words.
	day := strings.Contains(text, m.Date) || strings.Contains(text, m.At) || strings.Contains(text, m.Brief)
	return day && (strings.Contains(text, m.Time) || strings.Contains(text, m.Brief))
}
