// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	_ "embed"
	"html/template"
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification/mail"
)

// noticeGalleryText is the page of all example mails. It loads nothing from outside.
//
//go:embed notice_gallery.html.tmpl
var noticeGalleryText string

var noticeGalleryTemplate = template.Must(template.New("notice_gallery.html").Parse(noticeGalleryText))

// galleryExample is an example with its mails in both languages.
type galleryExample struct {
	Name  string
	Kind  v1alpha1.NoticeKind
	Mails []galleryMail
}

// galleryMail is a mail in one language.
type galleryMail struct {
	Language v1alpha1.Language
	*mail.Message
}

// galleryFrame is a frame that shows a mail's HTML: its width in pixels and its color scheme.
type galleryFrame struct {
	Width  int
	Scheme string
}

// renderNoticeGallery returns a page with each example in both languages: its HTML in frames of the
// width of a phone and of a desktop, and its text.
func renderNoticeGallery() (string, error) {
	var examples []*galleryExample
	for _, request := range mail.Examples() {
		m, err := mail.Compose(request)
		if err != nil {
			return "", err
		}
		name := exampleName(request)
		i := slices.IndexFunc(examples, func(e *galleryExample) bool { return e.Name == name })
		if i < 0 {
			i = len(examples)
			examples = append(examples, &galleryExample{Name: name, Kind: request.Notice.Spec.Kind})
		}
		examples[i].Mails = append(examples[i].Mails, galleryMail{Language: request.Notice.Spec.Recipient.Language, Message: m})
	}
	slices.SortStableFunc(examples, func(a, b *galleryExample) int { return cmp.Compare(a.Name, b.Name) })
	var page strings.Builder
	err := noticeGalleryTemplate.Execute(&page, map[string]any{
		"Examples": examples,
		"Frames":   []galleryFrame{{360, "light"}, {360, "dark"}, {1024, "light"}},
	})
	return page.String(), err
}
