// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io"
	"math"
	"strings"
	"sync"
	texttemplate "text/template"

	"sluice.dev/api/v1alpha1"
)

// Templates are the texts of mails: those that are built in, and those that an
// administrator put in their place. The zero value and nil are the ones built in.
type Templates struct{ replaced map[string]renderer }

// renderer is a template of either kind.
type renderer interface {
	Execute(w io.Writer, data any) error
}

// Builtin are the texts that come with the program.
func Builtin() *Templates { return &Templates{} }

// The forms of a text, as the ends of their keys.
const (
	formSubject = "subject"
	formText    = "txt"
	formHTML    = "html"
)

func key(kind v1alpha1.NoticeKind, language v1alpha1.Language, form string) string {
	return fmt.Sprintf("%s.%s.%s", kind, language, form)
}

// longestOutput is how large a text of a replaced template may be: 256 KiB.
const longestOutput = 256 << 10

var errTooLong = errors.New("it makes a text of more than 256 KiB; that is as much as a mail may have")

// bounded holds so much and no more.
type bounded struct {
	bytes.Buffer
	limit int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.limit {
		return 0, errTooLong
	}
	return b.Buffer.Write(p)
}

func (t *Templates) subject(p *Page) (string, error) {
	said, ok, err := t.render(p, formSubject)
	if !ok {
		c := contents()[contentKey{v1alpha1.NoticeKind(p.Kind), v1alpha1.Language(p.Language)}]
		said, err = c.block("subject", p)
	}
	return oneLine(said), err
}

func (t *Templates) text(p *Page) (string, error) {
	said, ok, err := t.render(p, formText)
	if !ok {
		said, err = execute(layouts().text, p, math.MaxInt)
	}
	return unixLines(said), err
}

func (t *Templates) html(p *Page) (string, error) {
	said, ok, err := t.render(p, formHTML)
	if !ok {
		said, err = execute(layouts().html, p, math.MaxInt)
	}
	return unixLines(said), err
}

// render is what a replaced template says; false where there is none.
func (t *Templates) render(p *Page, form string) (said string, ok bool, err error) {
	if t == nil {
		return "", false, nil
	}
	file := key(v1alpha1.NoticeKind(p.Kind), v1alpha1.Language(p.Language), form)
	r, ok := t.replaced[file]
	if !ok {
		return "", false, nil
	}
	if said, err = execute(r, p, longestOutput); err != nil {
		return "", true, fmt.Errorf("template %s: %w", file, err)
	}
	return said, true, nil
}

func execute(r renderer, p *Page, limit int) (string, error) {
	b := bounded{limit: limit}
	if err := r.Execute(&b, p); err != nil {
		return "", err
	}
	return b.String(), nil
}

// unixLines has line feeds alone, and no other control characters than these and tabs.
func unixLines(s string) string {
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.ToValidUTF8(s, "\ufffd"))
	s = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, s)
	return strings.TrimSpace(s) + "\n"
}

type layout struct{ text, html renderer }

var layouts = sync.OnceValue(func() layout {
	read := func(name string) string {
		raw, _ := texts.ReadFile("texts/" + name) // embedded: it is there
		return string(raw)
	}
	return layout{
		text: texttemplate.Must(texttemplate.New("layout.txt").Funcs(wrapping).Parse(read("layout.txt.tmpl"))),
		html: htmltemplate.Must(htmltemplate.New("layout.html").Parse(read("layout.html.tmpl"))),
	}
})
