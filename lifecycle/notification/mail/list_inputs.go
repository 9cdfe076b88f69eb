// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice.dev/api/v1alpha1"
)

// Count counts the objects of one kind.
type Count struct {
	// Kind is the Kubernetes kind, such as Job.
	Kind string
	// N is the number of objects: 1 to 999999999.
	N int
}

// maxCounts bounds the kinds of a list.
const maxCounts = 64

var countPattern = regexp.MustCompile(`^([A-Z][A-Za-z0-9]{0,62})=([1-9][0-9]{0,8})$`)

// FormatCounts returns the value of the inputs removed and kept: "Job=3,RoleBinding=2". It omits
// zero counts.
func FormatCounts(counts []Count) string {
	var parts []string
	for _, c := range counts {
		if c.N > 0 {
			parts = append(parts, c.Kind+"="+strconv.Itoa(c.N))
		}
	}
	return strings.Join(parts, ",")
}

// ParseCounts parses the result of [FormatCounts]. Its error names the invalid part.
func ParseCounts(text string) (counts []Count, err error) {
	parts := strings.Split(text, ",")
	if len(parts) > maxCounts {
		return nil, fmt.Errorf("%d kinds are listed; at most %d are allowed", len(parts), maxCounts)
	}
	for _, part := range parts {
		m := countPattern.FindStringSubmatch(part)
		if m == nil {
			return nil, fmt.Errorf("%q is not of the form Job=3", truncate(sanitize(part), maxNameRunes))
		}
		if slices.ContainsFunc(counts, func(c Count) bool { return c.Kind == m[1] }) {
			return nil, fmt.Errorf("%s is listed twice", m[1])
		}
		n, err := strconv.Atoi(m[2])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", part, err)
		}
		counts = append(counts, Count{Kind: m[1], N: n})
	}
	return counts, nil
}

// localizeCounts formats counts in the language.
func (p *TemplateData) localizeCounts(counts []Count) string {
	var words []string
	for _, c := range counts {
		words = append(words, strconv.Itoa(c.N)+" "+p.kindNoun(c))
	}
	return strings.Join(words, ", ")
}

// kindNoun returns the noun of a kind in singular or plural; PersistentVolumeClaims are called
// volumes.
func (p *TemplateData) kindNoun(c Count) string {
	word := c.Kind
	if word == "PersistentVolumeClaim" {
		word = "volume"
		if p.Language == string(v1alpha1.LanguageGerman) {
			word = "Volume"
		}
	}
	switch {
	case c.N == 1:
		return word
	case strings.HasSuffix(word, "y") && !strings.HasSuffix(word, "ay"):
		return strings.TrimSuffix(word, "y") + "ies"
	case strings.HasSuffix(word, "ss"), strings.HasSuffix(word, "x"), strings.HasSuffix(word, "ch"):
		return word + "es"
	case strings.HasSuffix(word, "s"): // Endpoints
		return word
	}
	return word + "s"
}

// maxListedContacts bounds the people of a list.
const maxListedContacts = 3

// FormatContacts returns the value of the inputs contacts and owners: "Anna Müller (anna@example.org), ...". It omits
// all but the first few.
func FormatContacts(contacts []v1alpha1.Contact) string {
	var people []string
	for _, c := range contacts[:min(len(contacts), maxListedContacts)] {
		text := string(c.Email)
		if name := displayName(string(c.Name)); name != "" {
			text = name + " (" + text + ")"
		}
		people = append(people, text)
	}
	return strings.Join(people, ", ")
}

// maxSummaryRows bounds the projects in a WeeklySummary.
const maxSummaryRows = 20

// decimalPattern matches recorded measurements.
var decimalPattern = regexp.MustCompile(`^[0-9]{1,12}([.][0-9]{1,3})?$`)

// formatHours formats an amount of use; empty for an invalid number.
func (p *TemplateData) formatHours(s string) string {
	if !decimalPattern.MatchString(s) {
		return ""
	}
	return p.localizeDecimal(s)
}

// setMonth sets the month of a WeeklySummary's GPU hours, 2026-11.
func (p *TemplateData) setMonth(formatter timeFormatter, text string) {
	of, err := time.Parse("2006-01", text)
	if err != nil {
		return
	}
	called := of.Month().String()
	if formatter.language == v1alpha1.LanguageGerman {
		called = germanMonths[of.Month()-1]
	}
	p.Month = called + " " + strconv.Itoa(of.Year())
}

// setProjectSteps sets the entries of a WeeklySummary: the next steps of projects, with their owners.
func (p *TemplateData) setProjectSteps(formatter timeFormatter, raw string) error {
	if raw == "" {
		return nil
	}
	var steps []ProjectStep
	if err := json.Unmarshal([]byte(raw), &steps); err != nil {
		return fmt.Errorf("spec.inputs.%s is not what FormatProjectSteps writes: %w", InputSteps, err)
	}
	for _, step := range steps[:min(len(steps), MaxProjectSteps)] {
		item := Item{Title: fmt.Sprintf(p.Words.StepOther, displayName(step.Project), displayName(string(step.Phase)))}
		title := map[v1alpha1.ProjectPhase]string{
			v1alpha1.ProjectExpired: p.Words.StepExpired, v1alpha1.ProjectSuspended: p.Words.StepSuspended,
			v1alpha1.ProjectPendingDeletion: p.Words.StepConfirm, v1alpha1.ProjectDeleting: p.Words.StepDeleted,
		}[step.Phase]
		if step.Closed && step.Phase == v1alpha1.ProjectPendingDeletion {
			title = p.Words.StepDeletable
		}
		if title != "" {
			item.Title = fmt.Sprintf(title, displayName(step.Project))
		}
		if owners := truncate(sanitize(step.Owners), maxProseRunes); owners != "" {
			item.Text = fmt.Sprintf(p.Words.StepOwners, owners)
		}
		if approver := displayName(step.ApprovedBy); approver != "" {
			item.Text = strings.TrimSpace(fmt.Sprintf(p.Words.StepApproved, approver) + " " + item.Text)
		}
		if at, err := time.Parse(time.RFC3339, step.At); err == nil {
			item.When = formatter.formatTime(at, true)
		}
		p.Items = append(p.Items, item)
		p.Listed = strings.TrimSpace(p.Listed + " " + commandArgument(step.Project, "NAME"))
	}
	return nil
}

// setAwaiting sets the projects of a WeeklySummary whose deletion awaits its approval.
func (p *TemplateData) setAwaiting(formatter timeFormatter, raw string) error {
	if raw == "" {
		return nil
	}
	var projects []ProjectStep
	if err := json.Unmarshal([]byte(raw), &projects); err != nil {
		return fmt.Errorf("spec.inputs.%s is not what FormatProjectSteps writes: %w", InputAwaiting, err)
	}
	var words, listed []string
	for _, project := range projects[:min(len(projects), MaxProjectSteps)] {
		word := displayName(project.Project)
		if at, err := time.Parse(time.RFC3339, project.At); err == nil {
			word = fmt.Sprintf(p.Words.AwaitingSince, word, formatter.formatTime(at, false).Day)
		}
		words, listed = append(words, word), append(listed, commandArgument(project.Project, "NAME"))
	}
	p.Awaiting, p.AwaitingListed = strings.Join(words, ", "), strings.Join(listed, " ")
	return nil
}

// setProjectRows sets the table of a WeeklySummary.
func (p *TemplateData) setProjectRows(formatter timeFormatter, raw string) error {
	if raw == "" {
		return nil
	}
	var rows []ProjectWeek
	if err := json.Unmarshal([]byte(raw), &rows); err != nil {
		return fmt.Errorf("spec.inputs.%s is not what Weeks writes: %w", InputProjects, err)
	}
	p.Columns = slices.Clone(p.Words.WeekColumns)
	if p.Month != "" {
		p.Columns[1] = fmt.Sprintf(p.Words.HoursIn, p.Month)
	}
	for i, row := range rows {
		if i == maxSummaryRows {
			p.More = p.Words.OneMore
			if more := len(rows) - maxSummaryRows; more > 1 {
				p.More = fmt.Sprintf(p.Words.More, more)
			}
			break
		}
		end := unknownPlaceholder
		if at, err := time.Parse(time.RFC3339, row.ExpiresAt); err == nil {
			end = formatter.formatTime(at, true).Day
		}
		p.Rows = append(
			p.Rows, []string{displayName(row.Project), cmp.Or(p.formatHours(row.GPUHours), unknownPlaceholder), strconv.Itoa(row.Stopped), end},
		)
	}
	return nil
}
