// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// TemplateData is what a template is given: everything that the mail says, in the recipient's
// language. It has strings, lists and nothing that does anything.
type TemplateData struct {
	// Language is de or en; Kind is the Notice's.
	Language, Kind string
	// Subject is the mail's; empty while it is made.
	Subject string
	// Title is what happens in a few words, Event the same as a calendar shows it.
	Title string
	// Greeting addresses the recipient by name.
	Greeting string
	// First says what happens and when; Why the reasons, a paragraph each; How the ways
	// to go on.
	First string
	Why   []string
	How   []Step
	// Deadline is what the mail warns of; nil where it warns of nothing.
	Deadline *LocalizedTime
	// Due is when it was to be said: of what was done, when that was.
	Due *LocalizedTime
	// Written is when the Notice was recorded, by the machine's time.
	Written *LocalizedTime
	// Anchor is the instant that the mail is about, the deadline where there is one, and
	// AnchorLabel what it is: "Wird gestoppt".
	Anchor      *LocalizedTime
	AnchorLabel string
	// Facts are the figures, as a table shows them.
	Facts []Fact
	// Items are the lines of a Digest; Columns and Rows the table of a WeeklySummary, and
	// More says what it leaves out.
	Items   []Item
	Columns []string
	Rows    [][]string
	More    string
	// Audience says who gets this mail and why, and how it is left out, where it can be.
	Audience string
	// Contact is the address for questions, Sender the one that the mail comes from.
	Contact, Sender string
	// Words are those around all this.
	Words Phrases
	// Cancelled says that the appointment is taken out of the calendar.
	Cancelled bool

	// Recipient is who is written to; Project, Department, Namespace, Workload and Name
	// what it is about, as people read it: "Job training".
	Recipient, Project, Department, Namespace, Workload, Name string
	// Target and Place are the workload and the namespace as commands have them:
	// "job/training". Object is the subject's bare name, Tenant the project's.
	Target, Place, Object, Tenant string
	// Start is the command that starts the workload again, empty where it is made anew.
	Start string
	// Extension is that of a deletion, as commands have it. Memory and Share are the GPU
	// memory that a pod holds and may hold, Hours the GPU hours of a
	// WeeklySummary, and Month the month that they are of: "November 2026"; empty where they
	// are the week's.
	Extension, Memory, Share, Hours, Month string
	// Renewal is true of an Extension that renews a project; Scaled of a workload that
	// stops by having no replicas; Deleted of one that stops by being deleted.
	Renewal, Scaled, Deleted bool
	// Because is why, in words: what stands in .In.because as a code is said in the
	// language. SelfService is which of those an extension is that the department grants
	// by itself: "1 of 2 within 30 days".
	Because, SelfService string
	// In are the Notice's inputs as they stand, but for lists of objects, which are in words; At those that are instants, Long those that are lengths.
	In   map[string]string
	At   map[string]*LocalizedTime
	Long map[string]*LocalizedDuration
}

// Step is one way to go on: a paragraph, or a command. Words are the command's, so that
// a line can be broken between them.
type Step struct {
	Text, Command string
	Words         []string
}

// Fact is one figure. Padded is the label, as wide as the widest.
type Fact struct{ Label, Padded, Value string }

// Item is one Notice that a Digest carries.
type Item struct {
	// Title is what happens, When when, Text the sentence that says both; after the
	// fortieth there is no Text.
	Title, Text string
	When        *LocalizedTime
	// Command is the first way to go on, Words its words; it may be empty.
	Command string
	Words   []string
}

// templateData is everything that the letter says.
func (l ComposeRequest) templateData() (*TemplateData, error) {
	p, tell := newTemplateData(l.Notice)
	p.Contact, p.Sender, p.Cancelled = l.contactAddress(), l.From.Address, l.Canceled
	if l.Notice.Spec.Kind == v1alpha1.NoticeDigest {
		if err := p.addDigestItems(l.Notice, l.Carried); err != nil {
			return nil, err
		}
	}
	if l.Notice.Spec.Kind == v1alpha1.NoticeWeeklySummary {
		if err := p.setProjectRows(tell, l.Notice.Spec.Inputs[InputProjects]); err != nil {
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

// newTemplateData is a page with all that a Notice holds, and no sentences yet.
func newTemplateData(n *v1alpha1.Notice) (*TemplateData, timeFormatter) {
	tell := newTimeFormatter(n)
	spec := &n.Spec
	p := &TemplateData{
		Language: string(tell.language), Kind: string(spec.Kind), Words: phrasesByLanguage[tell.language],
		Recipient: displayName(string(spec.Recipient.Name)),
		In:        map[string]string{}, At: map[string]*LocalizedTime{}, Long: map[string]*LocalizedDuration{},
	}
	endsDay := strings.HasPrefix(string(spec.Kind), "Project")
	if spec.Deadline != nil {
		p.Deadline = tell.formatTime(spec.Deadline.Time, endsDay)
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
			p.At[key] = tell.formatTime(at, endsDay || key == InputTo || spec.Inputs[InputTargetKind] == "Project")
		}
	}
	for _, key := range durationInputs {
		if p.isGPUQuantity(key) {
			continue // 500m are half a GPU, not minutes
		}
		if d, err := period.ParseDuration(spec.Inputs[key]); err == nil {
			p.Long[key] = tell.formatExact(d.Length())
		}
	}
	if ran, err := time.ParseDuration(spec.Inputs[InputAccumulatedSeconds] + "s"); err == nil && ran > 0 {
		p.Long[InputAccumulatedSeconds] = tell.formatExact(max(ran.Truncate(time.Minute), time.Minute))
	}
	for _, key := range []string{InputRemoved, InputKept} {
		if counts, err := ParseCounts(spec.Inputs[key]); err == nil {
			p.In[key] = truncate(p.localizeCounts(counts), maxProseRunes)
		}
	}
	p.Because, p.SelfService = p.localizedCause(), p.selfServiceUsage()
	p.Due, p.Written = tell.formatTime(spec.DueAt.Time, false), tell.formatTime(recordedAt(n), false)
	p.setSubject(n)
	p.Extension = commandArgument(spec.Inputs[InputExtension], "NAME")
	p.Memory, p.Share, p.Hours = p.formatGibibytes(InputMemoryMiB), p.formatGibibytes(InputShareMiB), p.formatHours(p.In[InputGPUHours])
	p.setMonth(tell, spec.Inputs[InputMonth])
	return p, tell
}

// renderContent fills in the sentences.
func (p *TemplateData) renderContent() error {
	c := noticeContents()[contentKey{v1alpha1.NoticeKind(p.Kind), v1alpha1.Language(p.Language)}]
	if c == nil {
		return fmt.Errorf("there is no text for %s in %q", p.Kind, p.Language)
	}
	return c.renderSentences(p)
}

// setAnchor finds the instant that stands out.
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
	}
}

// maxFullDigestItems is how many Notices of a Digest have their text; the others have their
// titles and dates alone, so that the mail stays one that can be read.
const maxFullDigestItems = 40

// addDigestItems takes in what a Digest is made of, in that order.
func (p *TemplateData) addDigestItems(digest *v1alpha1.Notice, carried []*v1alpha1.Notice) error {
	var first *v1alpha1.Notice
	for i, n := range carried {
		n = n.DeepCopy()
		n.Spec.Recipient = digest.Spec.Recipient
		n.CreationTimestamp, n.Spec.DueAt = digest.CreationTimestamp, digest.Spec.DueAt
		q, _ := newTemplateData(n)
		if err := q.renderContent(); err != nil {
			return err
		}
		item := Item{Title: q.Title, Text: q.First, When: q.Deadline}
		if at := slices.IndexFunc(q.How, func(s Step) bool { return s.Command != "" }); at >= 0 {
			item.Command, item.Words = q.How[at].Command, q.How[at].Words
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
