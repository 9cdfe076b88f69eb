// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

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

// texts holds a file for each kind and language, with the blocks subject, title, first, why and
// how, and the two layouts.
//
//go:embed texts
var texts embed.FS

type contentKey struct {
	kind     v1alpha1.NoticeKind
	language v1alpha1.Language
}

// content holds the texts of one kind in one language. The HTML layout escapes them.
type content struct{ blocks *template.Template }

// noticeContents returns all contents. They are embedded, so tests find errors in them.
var noticeContents = sync.OnceValue(func() map[contentKey]*content {
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

// renderBlock renders one block.
func (c *content) renderBlock(name string, p *TemplateData) (string, error) {
	var b bytes.Buffer
	if err := c.blocks.ExecuteTemplate(&b, name, p); err != nil {
		return "", fmt.Errorf("the text of %s in %q: %w", p.Kind, p.Language, err)
	}
	return strings.TrimSpace(b.String()), nil
}

// renderSentences renders the blocks into p.
func (c *content) renderSentences(p *TemplateData) error {
	blocks := map[string]string{}
	for _, name := range []string{"title", "first", "why", "how"} {
		var err error
		if blocks[name], err = c.renderBlock(name, p); err != nil {
			return err
		}
	}
	p.Title, p.First = subjectLine(blocks["title"]), sanitize(blocks["first"])
	p.Why, p.How = nil, nil
	for line := range strings.Lines(blocks["why"]) {
		if line = sanitize(line); line != "" {
			p.Why = append(p.Why, line)
		}
	}
	for line := range strings.Lines(blocks["how"]) {
		command, isCommand := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		switch {
		case isCommand:
			p.How = append(p.How, Step{Command: command, Words: strings.Fields(command)})
		case sanitize(line) != "":
			p.How = append(p.How, Step{Text: sanitize(line)})
		}
	}
	p.Greeting = strings.TrimSpace(p.Words.Hello+" "+p.Recipient) + ","
	p.Audience = audienceNote(p)
	return nil
}

// audienceNote returns who receives the mail, and how to unsubscribe.
func audienceNote(p *TemplateData) string {
	kind := v1alpha1.NoticeKind(p.Kind)
	note := p.Words.AudienceOwners
	switch kind {
	case v1alpha1.NoticeWorkloadEnding, v1alpha1.NoticeWorkloadIdle, v1alpha1.NoticeWorkloadStopped, v1alpha1.NoticeExtensionDecided:
		note = p.Words.AudienceCreator
	case v1alpha1.NoticeExtensionRequested:
		note = p.Words.AudienceContacts
	case v1alpha1.NoticeWeeklySummary:
		note = p.Words.AudienceAdministrators
	case v1alpha1.NoticeDigest:
		note = p.Words.AudienceDigest
	case v1alpha1.NoticeTest:
		note = p.Words.AudienceTest
	}
	note = strings.NewReplacer("PROJECT", p.Project, "DEPARTMENT", p.Department).Replace(note)
	if optionalKinds[kind] {
		note += " " + strings.ReplaceAll(p.Words.Optional, "KIND", p.Kind)
	}
	return note
}

// Phrases holds the fixed phrases of a language.
type Phrases struct {
	// Hello precedes the recipient's name, Next and Facts are headings, Questions precedes the
	// address for questions.
	Hello, Next, Facts, Questions string
	// Anchors labels the time of each kind.
	Anchors map[v1alpha1.NoticeKind]string
	// Withdrawn says that the appointment is canceled.
	Withdrawn string
	// Sender names the sender.
	Sender string
	// Until says up to when hours are counted.
	Until string
	// WeekColumns are the headings of a WeeklySummary's table, HoursIn that of a month's hours;
	// More counts the omitted rows.
	WeekColumns []string
	HoursIn     string
	More        string
	// AudienceOwners, AudienceCreator, AudienceContacts, AudienceAdministrators, AudienceDigest and
	// AudienceTest say who receives a mail, Optional how to unsubscribe. PROJECT, DEPARTMENT and
	// KIND are placeholders.
	AudienceOwners, AudienceCreator, AudienceContacts, AudienceAdministrators, AudienceDigest, AudienceTest, Optional string
}

var phrasesByLanguage = map[v1alpha1.Language]Phrases{
	v1alpha1.LanguageGerman: {
		Hello: "Guten Tag", Next: "So geht es weiter", Facts: "Auf einen Blick", Questions: "Bei Fragen wenden Sie sich bitte an",
		Anchors: map[v1alpha1.NoticeKind]string{
			v1alpha1.NoticeWorkloadEnding: "Wird gestoppt", v1alpha1.NoticeWorkloadIdle: "Wird gestoppt, falls weiter ungenutzt",
			v1alpha1.NoticeWorkloadStopped: "Neustart möglich ab", v1alpha1.NoticeShareExceeded: "Wird gestoppt, falls unverändert",
			v1alpha1.NoticePreemption: "Wird beendet", v1alpha1.NoticeExtensionDecided: "Neues Ende",
			v1alpha1.NoticeProjectExpiring: "Gültig bis", v1alpha1.NoticeProjectExpired: "Workloads werden gestoppt",
			v1alpha1.NoticeProjectSuspending: "Workloads werden gestoppt", v1alpha1.NoticeProjectSuspended: "Löschung möglich ab",
			v1alpha1.NoticeProjectDeletion: "Löschung möglich ab", v1alpha1.NoticeProjectConfirm: "Antwort erbeten bis",
			v1alpha1.NoticeProjectRenewed: "Gültig bis", v1alpha1.NoticeDigest: "Nächster Termin",
		},
		Withdrawn:   "Der bisherige Termin entfällt; der Anhang entfernt ihn aus Ihrem Kalender.",
		Until:       "Stand %s",
		Sender:      "Diese Mail wurde automatisch von Sluice erstellt, der Verwaltung des GPU-Clusters.",
		WeekColumns: []string{"Projekt", "GPU-Stunden", "Gestoppt", "Gültig bis"},
		HoursIn:     "GPU-Stunden im %s",
		More:        "Dazu %d weitere Projekte.",

		AudienceOwners: "Sie geht an die Eigentümer des Projekts PROJECT oder, " +
			"wenn es keine hat, an die Ansprechpartner der Abteilung DEPARTMENT.",
		AudienceCreator: "Sie geht an die Person, die den Workload gestartet oder die Verlängerung beantragt hat. " +
			"Die Eigentümer des Projekts PROJECT erhalten sie in Kopie, oder wenn die Adresse dieser Person nicht bekannt ist.",
		AudienceContacts:       "Sie geht an die Ansprechpartner der Abteilung DEPARTMENT, die über den Antrag entscheidet.",
		AudienceAdministrators: "Sie geht jede Woche an die Verwalter der Abteilung DEPARTMENT.",
		AudienceDigest: "Sie fasst die Hinweise eines Tages zusammen und geht an die Eigentümer der genannten Projekte " +
			"oder, wenn ein Projekt keine hat, an die Ansprechpartner der Abteilung.",
		AudienceTest: "Sie geht nur an diese Adresse.",
		Optional: "Sie können Mails dieser Art abbestellen: Antworten Sie mit dem Wort „abbestellen“, " +
			"oder lassen Sie KIND bei Ihrer Adresse unter „mute“ eintragen.",
	},
	v1alpha1.LanguageEnglish: {
		Hello: "Hello", Next: "What you can do", Facts: "At a glance", Questions: "Questions? Please write to",
		Anchors: map[v1alpha1.NoticeKind]string{
			v1alpha1.NoticeWorkloadEnding: "Will be stopped", v1alpha1.NoticeWorkloadIdle: "Will be stopped unless it is used",
			v1alpha1.NoticeWorkloadStopped: "Can be restarted from", v1alpha1.NoticeShareExceeded: "Will be stopped if unchanged",
			v1alpha1.NoticePreemption: "Will be preempted", v1alpha1.NoticeExtensionDecided: "New end",
			v1alpha1.NoticeProjectExpiring: "Valid until", v1alpha1.NoticeProjectExpired: "Workloads will be stopped",
			v1alpha1.NoticeProjectSuspending: "Workloads will be stopped", v1alpha1.NoticeProjectSuspended: "Deletion possible from",
			v1alpha1.NoticeProjectDeletion: "Deletion possible from", v1alpha1.NoticeProjectConfirm: "Please answer by",
			v1alpha1.NoticeProjectRenewed: "Valid until", v1alpha1.NoticeDigest: "Next date",
		},
		Withdrawn:   "The previous appointment is canceled; the attachment removes it from your calendar.",
		Until:       "as of %s",
		Sender:      "Sluice, which manages the GPU cluster, sent this mail automatically.",
		WeekColumns: []string{"Project", "GPU hours", "Stopped", "Valid until"},
		HoursIn:     "GPU hours in %s",
		More:        "And %d more projects.",

		AudienceOwners: "It goes to the owners of project PROJECT or, where it has none, to the contacts of department DEPARTMENT.",
		AudienceCreator: "It goes to the user who started the workload or requested the extension. " +
			"The owners of project PROJECT receive it as a copy, or if no address of this user is known.",
		AudienceContacts:       "It goes to the contacts of department DEPARTMENT, who decide on the request.",
		AudienceAdministrators: "It goes to the administrators of department DEPARTMENT every week.",
		AudienceDigest: "It collects the notices of one day and goes to the owners of these projects " +
			"or, where a project has none, to the contacts of its department.",
		AudienceTest: "It goes to this address only.",
		Optional: "You can unsubscribe from mails of this kind: reply with the word \"unsubscribe\", " +
			"or have KIND added to \"mute\" at your address.",
	},
}
