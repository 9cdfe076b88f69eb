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
	"unicode"
	"unicode/utf8"

	"sluice.dev/api/v1alpha1"
)

// texts holds a file for each kind and language, with the blocks subject, title, first, why and
// how, one with a block that several kinds share, and the two layouts.
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
		renewal, _ := texts.ReadFile(path.Join(folder, renewalFile))
		for _, file := range files {
			if file.Name() == renewalFile {
				continue
			}
			raw, _ := texts.ReadFile(path.Join(folder, file.Name()))
			kind := strings.TrimSuffix(file.Name(), ".tmpl")
			blocks := template.New(file.Name()).Option("missingkey=zero").Funcs(contentFuncs)
			template.Must(template.Must(blocks.Parse(string(renewal))).Parse(string(raw)))
			all[contentKey{v1alpha1.NoticeKind(kind), language}] = &content{blocks: blocks}
		}
	}
	return all
})

// renewalFile is the file with the block renewal, which the texts about projects share: the command that renews the
// project, and the address for owners who cannot run it.
const renewalFile = "renewal.tmpl"

// contentFuncs holds the functions of the built-in texts.
var contentFuncs = template.FuncMap{"count": countPhrase}

// countPhrase returns the phrase for a number: zero for 0, one for 1, else many, with the number for
// its %s.
func countPhrase(number, zero, one, many string) string {
	switch {
	case strings.Trim(number, "0.,") == "":
		return zero
	case number == "1":
		return one
	}
	return strings.ReplaceAll(many, "%s", number)
}

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
	p.Summary = p.First
	if p.Language == string(v1alpha1.LanguageGerman) {
		p.Summary = capitalize(p.First) // after a greeting German continues in lower case
	}
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

// capitalize returns the text with a capital first letter.
func capitalize(s string) string {
	first, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return s
	}
	return string(unicode.ToUpper(first)) + s[size:]
}

// audienceNote returns why the recipient receives the mail, and how to unsubscribe.
func audienceNote(p *TemplateData) string {
	kind := v1alpha1.NoticeKind(p.Kind)
	note := p.Words.AudienceOwners
	switch kind {
	case v1alpha1.NoticeWorkloadEnding, v1alpha1.NoticeWorkloadIdle, v1alpha1.NoticeWorkloadStopped, v1alpha1.NoticeShareExceeded,
		v1alpha1.NoticePreemption:
		note = p.Words.AudienceWorkload
	case v1alpha1.NoticeExtensionDecided:
		if note = p.Words.AudienceRequester; p.Renewal {
			note = p.Words.AudienceRenewal
		}
	case v1alpha1.NoticeProjectDeleted:
		note = p.Words.AudienceDeletion
	case v1alpha1.NoticeExtensionRequested:
		if note = p.Words.AudienceContacts; p.In[InputInformed] != "" {
			note = p.Words.AudienceRequester
		}
	case v1alpha1.NoticeWorkloadUnstoppable:
		note = p.Words.AudienceOperators
	case v1alpha1.NoticeWeeklySummary:
		note = p.Words.AudienceAdministrators
	case v1alpha1.NoticeDigest:
		note = p.Words.AudienceDigest
	case v1alpha1.NoticeTest:
		note = p.Words.AudienceTest
	}
	if kind != v1alpha1.NoticeProjectDeleted && p.In[InputOwners] != "" {
		note = p.Words.AudienceOperators
	}
	note = strings.NewReplacer("PROJECT", p.Project, "DEPARTMENT", p.Department).Replace(note)
	if p.optional {
		note += " " + p.Words.Optional
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
	// NextRun labels the time of the next run of a stopped run's CronJob.
	NextRun string
	// Deletion labels the time of a deletion that was approved.
	Deletion string
	// Withdrawn says that the appointment is canceled.
	Withdrawn string
	// Sender names the sender.
	Sender string
	// Until says up to when hours are counted.
	Until string
	// WeekColumns are the headings of a WeeklySummary's table, HoursIn that of a month's hours;
	// OneMore and More count the omitted rows.
	WeekColumns   []string
	HoursIn       string
	OneMore, More string
	// The steps are those of a project's expiry in a WeeklySummary. StepOwners names its owners.
	StepExpired, StepConfirm, StepSuspended, StepDeletable, StepDeleted, StepOther, StepOwners, StepApproved string
	// AwaitingSince says since when the deletion of a project awaits its approval.
	AwaitingSince string
	// Overview is the heading of the table after them.
	Overview string
	// The audiences say why the recipient receives a mail, Optional how to unsubscribe. PROJECT and
	// DEPARTMENT are placeholders.
	AudienceOwners, AudienceWorkload, AudienceRequester, AudienceRenewal, AudienceDeletion, AudienceContacts, AudienceAdministrators, AudienceDigest,
	AudienceOperators, AudienceTest string

	Optional string
}

var phrasesByLanguage = map[v1alpha1.Language]Phrases{
	v1alpha1.LanguageGerman: {
		Hello: "Guten Tag", Next: "So geht es weiter", Facts: "Auf einen Blick", Questions: "Bei Fragen wenden Sie sich bitte an",
		Anchors: map[v1alpha1.NoticeKind]string{
			v1alpha1.NoticeWorkloadEnding: "Wird gestoppt", v1alpha1.NoticeWorkloadIdle: "Wird gestoppt, falls unverändert",
			v1alpha1.NoticeWorkloadStopped: "Neustart möglich ab", v1alpha1.NoticeShareExceeded: "Wird gestoppt, falls unverändert",
			v1alpha1.NoticePreemption: "Wird beendet", v1alpha1.NoticeExtensionDecided: "Neues Ende",
			v1alpha1.NoticeProjectExpiring: "Gültig bis", v1alpha1.NoticeProjectExpired: "Laufende Workloads werden gestoppt",
			v1alpha1.NoticeProjectSuspending: "Laufende Workloads werden gestoppt", v1alpha1.NoticeProjectSuspended: "Löschung möglich ab",
			v1alpha1.NoticeProjectDeletion: "Löschung möglich ab", v1alpha1.NoticeProjectConfirm: "Antwort erbeten bis",
			v1alpha1.NoticeProjectRenewed: "Gültig bis", v1alpha1.NoticeDigest: "Nächster Termin",
		},
		NextRun:       "Nächster Lauf frühestens",
		Deletion:      "Wird gelöscht",
		Withdrawn:     "Der bisherige Termin entfällt; der Anhang entfernt ihn aus Ihrem Kalender.",
		Until:         "Stand %s",
		Sender:        "Diese E-Mail wurde automatisch von Sluice versandt.",
		WeekColumns:   []string{"Projekt", "GPU-Stunden", "Gestoppt", "Gültig bis"},
		HoursIn:       "GPU-Stunden im %s",
		OneMore:       "Dazu kommt 1 weiteres Projekt.",
		More:          "Dazu kommen %d weitere Projekte.",
		StepExpired:   "Projekt %s läuft ab",
		StepConfirm:   "Projekt %s: Bestätigung fällig",
		StepOther:     "Projekt %s: %s",
		StepOwners:    "Zuständig: %s",
		StepSuspended: "Projekt %s: Workloads werden gestoppt",
		StepDeletable: "Projekt %s: Löschung kann genehmigt werden",
		StepDeleted:   "Projekt %s wird gelöscht",
		StepApproved:  "Genehmigt von %s.",
		AwaitingSince: "%s (seit %s)",
		Overview:      "Die Projekte im Überblick",

		AudienceOwners:    "Sie erhalten sie, weil Sie für das Projekt PROJECT zuständig sind.",
		AudienceWorkload:  "Sie erhalten sie, weil Sie den Workload erstellt haben oder für das Projekt PROJECT zuständig sind.",
		AudienceRequester: "Sie erhalten sie, weil Sie den Antrag gestellt haben oder für das Projekt PROJECT zuständig sind.",
		AudienceRenewal: "Sie erhalten sie, weil Sie den Antrag gestellt haben, für das Projekt PROJECT zuständig oder Ansprechperson " +
			"der Abteilung DEPARTMENT sind.",
		AudienceDeletion:       "Sie erhalten sie, weil Sie für das Projekt PROJECT zuständig oder Ansprechperson der Abteilung DEPARTMENT sind.",
		AudienceContacts:       "Sie erhalten sie, weil Sie in der Abteilung DEPARTMENT über Anträge entscheiden.",
		AudienceOperators:      "Sie erhalten sie als Ansprechperson der Abteilung DEPARTMENT.",
		AudienceAdministrators: "Sie erhalten sie jede Woche, weil Sie die Abteilung DEPARTMENT verwalten.",
		AudienceDigest:         "Sie fasst die Hinweise eines Tages zu Projekten zusammen, für die Sie zuständig sind.",
		AudienceTest:           "Sie geht nur an diese Adresse.",

		Optional: "Wenn Sie E-Mails dieser Art nicht mehr erhalten möchten, antworten Sie bitte mit dem Wort „abbestellen“.",
	},
	v1alpha1.LanguageEnglish: {
		Hello: "Hello", Next: "What you can do", Facts: "At a glance", Questions: "Questions? Please write to",
		Anchors: map[v1alpha1.NoticeKind]string{
			v1alpha1.NoticeWorkloadEnding: "Will be stopped", v1alpha1.NoticeWorkloadIdle: "Will be stopped if unchanged",
			v1alpha1.NoticeWorkloadStopped: "Can be restarted from", v1alpha1.NoticeShareExceeded: "Will be stopped if unchanged",
			v1alpha1.NoticePreemption: "Will be preempted", v1alpha1.NoticeExtensionDecided: "New end",
			v1alpha1.NoticeProjectExpiring: "Valid until", v1alpha1.NoticeProjectExpired: "Running workloads will be stopped",
			v1alpha1.NoticeProjectSuspending: "Running workloads will be stopped", v1alpha1.NoticeProjectSuspended: "Deletion possible from",
			v1alpha1.NoticeProjectDeletion: "Deletion possible from", v1alpha1.NoticeProjectConfirm: "Please answer by",
			v1alpha1.NoticeProjectRenewed: "Valid until", v1alpha1.NoticeDigest: "Next deadline",
		},
		NextRun:       "Next run at the earliest",
		Deletion:      "Will be deleted",
		Withdrawn:     "The previous appointment is canceled; the attachment removes it from your calendar.",
		Until:         "as of %s",
		Sender:        "This mail was sent automatically by Sluice.",
		WeekColumns:   []string{"Project", "GPU hours", "Stopped", "Valid until"},
		HoursIn:       "GPU hours in %s",
		OneMore:       "And 1 more project.",
		More:          "And %d more projects.",
		StepExpired:   "Project %s expires",
		StepConfirm:   "Project %s: confirmation due",
		StepOther:     "Project %s: %s",
		StepOwners:    "Owners: %s",
		StepSuspended: "Project %s: workloads will be stopped",
		StepDeletable: "Project %s: deletion can be approved",
		StepDeleted:   "Project %s will be deleted",
		StepApproved:  "Approved by %s.",
		AwaitingSince: "%s (since %s)",
		Overview:      "The projects at a glance",

		AudienceOwners:    "You receive it because you are responsible for project PROJECT.",
		AudienceWorkload:  "You receive it because you created the workload or are responsible for project PROJECT.",
		AudienceRequester: "You receive it because you requested the extension or are responsible for project PROJECT.",
		AudienceRenewal: "You receive it because you requested the renewal, are responsible for project PROJECT, or are a contact " +
			"of department DEPARTMENT.",
		AudienceDeletion:       "You receive it because you are responsible for project PROJECT, or as a contact of department DEPARTMENT.",
		AudienceContacts:       "You receive it because you decide on requests in department DEPARTMENT.",
		AudienceOperators:      "You receive it as a contact of department DEPARTMENT.",
		AudienceAdministrators: "You receive it every week because you administer department DEPARTMENT.",
		AudienceDigest:         "It collects the notices of one day about projects that you are responsible for.",
		AudienceTest:           "It goes to this address only.",

		Optional: "If you no longer want mails of this kind, please reply with the word “unsubscribe”.",
	},
}
