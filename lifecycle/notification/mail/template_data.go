// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// TemplateData is the input of a template: the content of the mail in the recipient's language. It
// has strings and lists and no methods.
type TemplateData struct {
	// Language is de or en; Kind is the Notice's.
	Language, Kind string
	// Subject is the mail's subject; empty while it is rendered.
	Subject string
	// Title says in a few words what happens.
	Title string
	// Greeting addresses the recipient by name.
	Greeting string
	// First says what happens and when, as it follows the greeting: in German it begins in lower case.
	// Summary is First as a sentence of its own. Why holds the reasons as paragraphs, How the next
	// steps.
	First, Summary string
	Why            []string
	How            []Step
	// Deadline is the time that the mail warns of; nil for none.
	Deadline *LocalizedTime
	// Due is when the Notice is due; for an event that happened, when it happened.
	Due *LocalizedTime
	// Written is when the Notice was recorded, in machine time.
	Written *LocalizedTime
	// Anchor is the highlighted time, usually the deadline, and AnchorLabel its label: "Wird
	// gestoppt".
	Anchor      *LocalizedTime
	AnchorLabel string
	// Facts holds the rows of the table of facts.
	Facts []Fact
	// Items holds the entries of a Digest, and the next steps of projects in a WeeklySummary; Columns
	// and Rows form the table of a WeeklySummary, and More counts the omitted rows.
	Items   []Item
	Columns []string
	Rows    [][]string
	More    string
	// Audience says why the recipient receives the mail, and how to unsubscribe if that is possible.
	Audience string
	// Contact is the address for questions, Sender the sender's address.
	Contact, Sender string
	// Words holds the fixed phrases.
	Words Phrases
	// Canceled reports whether the appointment is canceled.
	Canceled bool

	optional bool // whether the recipient can mute it

	// Recipient, Project, Department, Namespace, Workload and Name are display names, such as
	// "Job training".
	Recipient, Project, Department, Namespace, Workload, Name string
	// Target and Place are the workload and the namespace as command arguments:
	// "job/training". Object is the subject's name, Tenant the project's name.
	Target, Place, Object, Tenant string
	// Step is the time of an extension in a command: the longest that the department grants at
	// once, or 24h.
	Step string
	// Start is the command that starts the workload again; empty if it must be created again.
	Start string
	// Memory and Share are the used and the allowed GPU memory of a pod. Hours holds the GPU hours of
	// a WeeklySummary, Month their month: "November 2026"; empty for hours of the week.
	Memory, Share, Hours, Month string
	// Listed holds the projects of a WeeklySummary's Items as command arguments. Awaiting holds those
	// whose deletion awaits its approval, in words; AwaitingListed as command arguments.
	Listed, Awaiting, AwaitingListed string
	// Renewal reports whether an Extension renews a project, Scaled whether the workload is
	// stopped by scaling to zero, Deleted whether it is stopped by deletion.
	Renewal, Scaled, Deleted bool
	// Cause is the cause in words: a code in .In.cause is localized. SelfService is the place
	// of a self-service extension: "1 of 2 within 30 days".
	Cause, SelfService string
	// In holds the Notice's inputs, with lists of objects in words; At those that are times, Long
	// those that are durations.
	In   map[string]string
	At   map[string]*LocalizedTime
	Long map[string]*LocalizedDuration
}

// Step is a next step: a paragraph or a command. Words holds the words of the command, for line
// breaks between them.
type Step struct {
	Text, Command string
	Words         []string
}

// Fact is a row of the table of facts. Padded is the label padded to the widest.
type Fact struct{ Label, Padded, Value string }

// Item is a Notice in a Digest, or a step of a project in a WeeklySummary.
type Item struct {
	// Title says what happens, When at what time, Text both in a sentence. Text is empty after
	// maxFullDigestItems.
	Title, Text string
	When        *LocalizedTime
	// Command is the first command of the next steps, Words its words; it may be empty. Help says what
	// to do who cannot run it; it is empty if the next entry has the same.
	Command string
	Words   []string
	Help    string
}

// templateData returns the content of the mail; relative adds durations from now, such as "in 4
// hours".
func (l ComposeRequest) templateData(relative bool) (*TemplateData, error) {
	formatter := newTimeFormatter(l.Notice)
	if !l.Now.IsZero() {
		formatter.now = l.Now
	}
	formatter.absolute = !relative
	p := newTemplateData(l.Notice, formatter)
	p.Contact, p.Sender, p.Canceled = l.contactAddress(), l.From.Address, l.Canceled
	if l.Notice.Spec.Kind == v1alpha1.NoticeDigest {
		if err := p.addDigestItems(l.Notice, l.Carried, formatter); err != nil {
			return nil, err
		}
	}
	if l.Notice.Spec.Kind == v1alpha1.NoticeWeeklySummary {
		in := l.Notice.Spec.Inputs
		err := errors.Join(
			p.setProjectRows(formatter, in[InputProjects]), p.setProjectSteps(formatter, in[InputSteps]), p.setAwaiting(formatter, in[InputAwaiting]))
		if err != nil {
			return nil, err
		}
	}
	if err := p.renderContent(); err != nil {
		return nil, err
	}
	p.setAnchor()
	p.Facts = renderFacts(p)
	return p, nil
}

// newTemplateData returns the data of a Notice, without rendered sentences.
func newTemplateData(n *v1alpha1.Notice, formatter timeFormatter) *TemplateData {
	spec := &n.Spec
	p := &TemplateData{
		Language: string(formatter.language), Kind: string(spec.Kind), Words: phrasesByLanguage[formatter.language],
		optional:  spec.IsOptional(),
		Recipient: displayName(string(spec.Recipient.Name)),
		In:        map[string]string{}, At: map[string]*LocalizedTime{}, Long: map[string]*LocalizedDuration{},
	}
	endsDay := strings.HasPrefix(string(spec.Kind), "Project")
	if spec.Deadline != nil {
		p.Deadline = formatter.formatTime(spec.Deadline.Time, endsDay)
	}
	for key, value := range spec.Inputs {
		long := maxNameRunes
		if proseInputs[key] {
			long = maxProseRunes
		}
		p.In[key] = truncate(sanitize(value), long)
		if p.isGPUQuantity(key) {
			p.In[key] = p.formatGPUQuantity(p.In[key])
		}
	}
	for _, key := range timeInputs {
		if at, err := time.Parse(time.RFC3339, spec.Inputs[key]); err == nil {
			p.At[key] = formatter.formatTime(at, endsDay || key == InputTo || spec.Inputs[InputTargetKind] == "Project")
		}
	}
	for _, key := range durationInputs {
		if p.isGPUQuantity(key) {
			continue // 500m are half a GPU, not minutes
		}
		if d, err := period.ParseDuration(spec.Inputs[key]); err == nil && d.Length() > 0 {
			p.Long[key] = formatter.formatExact(d.Length())
		}
	}
	if ran, err := time.ParseDuration(spec.Inputs[InputAccumulatedSeconds] + "s"); err == nil && ran > 0 {
		p.Long[InputAccumulatedSeconds] = formatter.formatExact(max(ran.Truncate(time.Minute), time.Minute))
	}
	for _, key := range []string{InputRemoved, InputKept} {
		if counts, err := ParseCounts(spec.Inputs[key]); err == nil {
			p.In[key] = truncate(p.localizeCounts(counts), maxProseRunes)
		}
	}
	p.Due, p.Written = formatter.formatTime(spec.DueAt.Time, false), formatter.formatTime(recordedAt(n), false)
	p.setSubject(n)
	p.Cause, p.SelfService = p.localizedCause(), p.selfServiceUsage()
	p.Memory, p.Share, p.Hours = p.formatMemory(InputMemoryMiB), p.formatMemory(InputShareMiB), p.formatHours(p.In[InputGPUHours])
	p.setMonth(formatter, spec.Inputs[InputMonth])
	p.Step = formatStep(spec.Inputs[InputMaxDuration])
	return p
}

// defaultStep is the time of an extension in a command if the department sets no bound.
const defaultStep = "24h"

// formatStep returns the time of an extension for a command.
func formatStep(maxDuration string) string {
	d, err := period.ParseDuration(maxDuration)
	if err != nil || d.IsZero() {
		return defaultStep
	}
	return d.String()
}

// renderContent renders the sentences and facts.
func (p *TemplateData) renderContent() error {
	c := noticeContents()[contentKey{v1alpha1.NoticeKind(p.Kind), v1alpha1.Language(p.Language)}]
	if c == nil {
		return fmt.Errorf("there is no text for %s in %q", p.Kind, p.Language)
	}
	return c.renderSentences(p)
}

// setAnchor sets the highlighted time.
func (p *TemplateData) setAnchor() {
	kind := v1alpha1.NoticeKind(p.Kind)
	switch p.Anchor = p.Deadline; {
	case kind == v1alpha1.NoticeWorkloadStopped:
		p.Anchor = p.At[InputUntil]
	case kind == v1alpha1.NoticeExtensionDecided && p.In[InputCause] == "":
		p.Anchor = p.At[InputNewEnd]
	}
	if p.Anchor != nil {
		p.AnchorLabel = p.Words.Anchors[kind]
		switch {
		case p.In[InputCronJob] != "" && kind == v1alpha1.NoticeWorkloadStopped:
			p.AnchorLabel = p.Words.NextRun
		case p.In[InputCause] == CauseDeletionApproved && kind == v1alpha1.NoticeProjectDeletion:
			p.AnchorLabel = p.Words.Deletion
		}
	}
}

// maxFullDigestItems bounds the Notices of a Digest with text; others have title and time only, so
// the mail stays readable.
const maxFullDigestItems = 40

// addDigestItems adds the Notices of a Digest in order.
func (p *TemplateData) addDigestItems(digest *v1alpha1.Notice, carried []*v1alpha1.Notice, formatter timeFormatter) error {
	var first *v1alpha1.Notice
	for i, n := range carried {
		n = n.DeepCopy()
		n.Spec.Recipient = digest.Spec.Recipient
		n.CreationTimestamp, n.Spec.DueAt = digest.CreationTimestamp, digest.Spec.DueAt
		q := newTemplateData(n, formatter)
		if err := q.renderContent(); err != nil {
			return err
		}
		item := Item{Title: q.Title, Text: q.Summary, When: q.Deadline}
		if at := slices.IndexFunc(q.How, func(s Step) bool { return s.Command != "" }); at >= 0 {
			item.Command, item.Words = q.How[at].Command, q.How[at].Words
			switch {
			case q.In[InputOwners] != "" && at > 0:
				item.Text += " " + q.How[at-1].Text
			case q.In[InputContacts] != "" && at+1 < len(q.How):
				item.Help = q.How[at+1].Text
			}
		}
		if i > 0 && p.Items[i-1].Help == item.Help {
			p.Items[i-1].Help = ""
		}
		if i >= maxFullDigestItems {
			item = Item{Title: q.Title, When: q.Deadline}
		}
		p.Items = append(p.Items, item)
		if n.Spec.Deadline != nil && (first == nil || n.Spec.Deadline.Before(first.Spec.Deadline)) {
			first, p.Deadline = n, q.Deadline
		}
	}
	return nil
}
