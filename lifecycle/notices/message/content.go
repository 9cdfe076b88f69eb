// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"embed"
	"fmt"
	"path"
	"strings"
	"sync"
	"text/template"

	"sluice.dev/api/v1alpha1"
)

// texts has a file for each kind and language, with the blocks subject, title, first,
// why and how; and the two layouts.
//
//go:embed texts
var texts embed.FS

type contentKey struct {
	kind     v1alpha1.NoticeKind
	language v1alpha1.Language
}

// content is what one kind says in one language. It is text: the HTML layout escapes it.
type content struct{ blocks *template.Template }

// contents are all of them. They are part of the program, so what is wrong with one
// is found by its tests.
var contents = sync.OnceValue(func() map[contentKey]*content {
	all := map[contentKey]*content{}
	for _, language := range []v1alpha1.Language{v1alpha1.LanguageGerman, v1alpha1.LanguageEnglish} {
		folder := path.Join("texts", string(language))
		files, _ := texts.ReadDir(folder) // embedded: it is there
		for _, file := range files {
			raw, _ := texts.ReadFile(path.Join(folder, file.Name()))
			kind := strings.TrimSuffix(file.Name(), ".tmpl")
			blocks := template.Must(template.New(file.Name()).Option("missingkey=zero").Parse(string(raw)))
			all[contentKey{v1alpha1.NoticeKind(kind), language}] = &content{blocks: blocks}
		}
	}
	return all
})

// block is what one block says.
func (c *content) block(name string, p *Page) (string, error) {
	var b bytes.Buffer
	if err := c.blocks.ExecuteTemplate(&b, name, p); err != nil {
		return "", fmt.Errorf("the text of %s in %q: %w", p.Kind, p.Language, err)
	}
	return strings.TrimSpace(b.String()), nil
}

// fill writes the page's sentences.
func (c *content) fill(p *Page) error {
	said := map[string]string{}
	for _, name := range []string{"title", "first", "why", "how"} {
		var err error
		if said[name], err = c.block(name, p); err != nil {
			return err
		}
	}
	p.Title, p.First = oneLine(said["title"]), clean(said["first"])
	p.Why, p.How = nil, nil
	for line := range strings.Lines(said["why"]) {
		if line = clean(line); line != "" {
			p.Why = append(p.Why, line)
		}
	}
	for line := range strings.Lines(said["how"]) {
		command, isCommand := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		switch {
		case isCommand:
			p.How = append(p.How, Step{Command: command, Words: strings.Fields(command)})
		case clean(line) != "":
			p.How = append(p.How, Step{Text: clean(line)})
		}
	}
	p.Greeting = strings.TrimSpace(p.Words.Hello+" "+p.Recipient) + ","
	p.Audience = audience(p)
	return nil
}

// audience says who gets the mail, and how one comes not to.
func audience(p *Page) string {
	kind := v1alpha1.NoticeKind(p.Kind)
	says := p.Words.AudienceOwners
	switch kind {
	case v1alpha1.NoticeExtensionRequested:
		says = p.Words.AudienceContacts
	case v1alpha1.NoticeWeeklySummary:
		says = p.Words.AudienceAdministrators
	case v1alpha1.NoticeDigest:
		says = p.Words.AudienceDigest
	case v1alpha1.NoticeTest:
		says = p.Words.AudienceTest
	}
	says = strings.NewReplacer("PROJECT", p.Project, "DEPARTMENT", p.Department).Replace(says)
	if optional[kind] {
		says += " " + strings.ReplaceAll(p.Words.Optional, "KIND", p.Kind)
	}
	return says
}
