// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

// Page is what a template is given: everything that the mail says, in the recipient's
// language. It has strings, lists and nothing that does anything.
type Page struct {
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
	Deadline *Moment
	// Due is when it was to be said: of what was done, when that was.
	Due *Moment
	// Written is when the Notice was recorded, by the machine's time.
	Written *Moment
	// Anchor is the instant that the mail is about, the deadline where there is one, and
	// AnchorLabel what it is: "Wird gestoppt".
	Anchor      *Moment
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
	Words Words
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
	At   map[string]*Moment
	Long map[string]*Length
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
	When        *Moment
	// Command is the first way to go on, Words its words; it may be empty.
	Command string
	Words   []string
}
