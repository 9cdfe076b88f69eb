// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notices

import (
	"fmt"
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notices/message"
)

// The forms of a preview.
const (
	FormText = "text"
	FormHTML = "html"
	FormMail = "eml"
)

// Example is a letter that can be previewed.
type Example struct {
	// Name is what it is called: its kind in lower case, and what of that it shows.
	Name string `json:"name"`
	// Kind is the message's.
	Kind v1alpha1.NoticeKind `json:"kind"`
	// Subject is the mail's, in the language that was asked for.
	Subject string `json:"subject"`
}

// Examples are the letters that can be previewed, by kinds.
func Examples(language v1alpha1.Language) ([]Example, error) {
	var list []Example
	for _, letter := range examples(language) {
		m, err := message.Compose(letter)
		if err != nil {
			return nil, err
		}
		list = append(list, Example{Name: nameOf(letter), Kind: letter.Notice.Spec.Kind, Subject: m.Subject})
	}
	slices.SortFunc(list, func(a, b Example) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Preview is the mail of an example, which is named by its kind or its name, in upper
// or lower case, in a form.
func Preview(which string, language v1alpha1.Language, form string) (string, error) {
	for _, letter := range examples(language) {
		if !strings.EqualFold(which, string(letter.Notice.Spec.Kind)) && !strings.EqualFold(which, nameOf(letter)) {
			continue
		}
		m, err := message.Compose(letter)
		if err != nil {
			return "", err
		}
		switch form {
		case FormHTML:
			return m.HTML, nil
		case FormMail:
			return string(m.Bytes), nil
		}
		return "Subject: " + m.Subject + "\n\n" + m.Text, nil
	}
	return "", fmt.Errorf("%q is no kind of message; `sluice notices preview` lists those that there are", which)
}

func examples(language v1alpha1.Language) []message.Letter {
	return slices.DeleteFunc(message.Examples(), func(l message.Letter) bool { return l.Notice.Spec.Recipient.Language != language })
}

// nameOf is an example's, without its language.
func nameOf(letter message.Letter) string {
	return strings.TrimSuffix(letter.Notice.Name, "."+string(letter.Notice.Spec.Recipient.Language))
}
