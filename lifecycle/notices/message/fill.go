// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// page is everything that the letter says.
func (l Letter) page() (*Page, error) {
	p, tell := newPage(l.Notice)
	p.Contact, p.Sender, p.Cancelled = l.contact(), l.From.Address, l.Cancelled
	if l.Notice.Spec.Kind == v1alpha1.NoticeDigest {
		if err := p.carry(l.Notice, l.Carried); err != nil {
			return nil, err
		}
	}
	if l.Notice.Spec.Kind == v1alpha1.NoticeWeeklySummary {
		if err := p.weeks(tell, l.Notice.Spec.Inputs[InputProjects]); err != nil {
			return nil, err
		}
	}
	if err := p.write(); err != nil {
		return nil, err
	}
	p.anchor()
	p.Facts = facts(p)
	return p, nil
}

// newPage is a page with all that a Notice holds, and no sentences yet.
func newPage(n *v1alpha1.Notice) (*Page, teller) {
	tell := newTeller(n)
	spec := &n.Spec
	p := &Page{
		Language: string(tell.language), Kind: string(spec.Kind), Words: words[tell.language],
		Recipient: name(string(spec.Recipient.Name)),
		In:        map[string]string{}, At: map[string]*Moment{}, Long: map[string]*Length{},
	}
	endsDay := strings.HasPrefix(string(spec.Kind), "Project")
	if spec.Deadline != nil {
		p.Deadline = tell.moment(spec.Deadline.Time, endsDay)
	}
	for key, value := range spec.Inputs {
		long := nameLength
		if prose[key] {
			long = proseLength
		}
		p.In[key] = shorten(clean(value), long)
		if p.countsGPUs(key) {
			p.In[key] = p.whole(p.In[key])
		}
	}
	for _, key := range instants {
		if at, err := time.Parse(time.RFC3339, spec.Inputs[key]); err == nil {
			p.At[key] = tell.moment(at, endsDay || key == InputTo || spec.Inputs[InputTargetKind] == "Project")
		}
	}
	for _, key := range lengths {
		if p.countsGPUs(key) {
			continue // 500m are half a GPU, not minutes
		}
		if d, err := period.ParseDuration(spec.Inputs[key]); err == nil {
			p.Long[key] = tell.exactly(d.Length())
		}
	}
	if ran, err := time.ParseDuration(spec.Inputs[InputAccumulatedSeconds] + "s"); err == nil && ran > 0 {
		p.Long[InputAccumulatedSeconds] = tell.exactly(max(ran.Truncate(time.Minute), time.Minute))
	}
	for _, key := range []string{InputRemoved, InputKept} {
		if counts, err := ParseCounts(spec.Inputs[key]); err == nil {
			p.In[key] = shorten(p.inWords(counts), proseLength)
		}
	}
	p.Because, p.SelfService = p.because(), p.selfService()
	p.Due, p.Written = tell.moment(spec.DueAt.Time, false), tell.moment(recorded(n), false)
	p.identify(n)
	p.Extension = argument(spec.Inputs[InputExtension], "NAME")
	p.Memory, p.Share, p.Hours = p.gibibytes(InputMemoryMiB), p.gibibytes(InputShareMiB), p.hours(p.In[InputGPUHours])
	p.month(tell, spec.Inputs[InputMonth])
	return p, tell
}

// write fills in the sentences.
func (p *Page) write() error {
	c := contents()[contentKey{v1alpha1.NoticeKind(p.Kind), v1alpha1.Language(p.Language)}]
	if c == nil {
		return fmt.Errorf("there is no text for %s in %q", p.Kind, p.Language)
	}
	return c.fill(p)
}

// anchor finds the instant that stands out.
func (p *Page) anchor() {
	kind := v1alpha1.NoticeKind(p.Kind)
	switch p.Anchor = p.Deadline; {
	case kind == v1alpha1.NoticeWorkloadStopped:
		p.Anchor = p.At[InputUntil]
	case kind == v1alpha1.NoticeExtensionDecided && p.In[InputBecause] == "":
		p.Anchor = p.At[InputNewEnd]
	}
	if p.Anchor != nil {
		p.AnchorLabel = p.Words.Anchors[kind]
	}
}

// itemsInFull is how many Notices of a Digest have their text; the others have their
// titles and dates alone, so that the mail stays one that can be read.
const itemsInFull = 40

// carry takes in what a Digest is made of, in that order.
func (p *Page) carry(digest *v1alpha1.Notice, carried []*v1alpha1.Notice) error {
	var first *v1alpha1.Notice
	for i, n := range carried {
		n = n.DeepCopy()
		n.Spec.Recipient = digest.Spec.Recipient
		n.CreationTimestamp, n.Spec.DueAt = digest.CreationTimestamp, digest.Spec.DueAt
		q, _ := newPage(n)
		if err := q.write(); err != nil {
			return err
		}
		item := Item{Title: q.Title, Text: q.First, When: q.Deadline}
		if at := slices.IndexFunc(q.How, func(s Step) bool { return s.Command != "" }); at >= 0 {
			item.Command, item.Words = q.How[at].Command, q.How[at].Words
		}
		if i >= itemsInFull {
			item = Item{Title: q.Title, When: q.Deadline}
		}
		p.Items = append(p.Items, item)
		if n.Spec.Deadline != nil && (first == nil || n.Spec.Deadline.Before(first.Spec.Deadline)) {
			first, p.Deadline = n, q.Deadline
		}
	}
	return nil
}
