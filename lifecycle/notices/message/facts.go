// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"sluice.dev/api/v1alpha1"
)

// figure is a line of the table of facts: its labels, and its value, empty where the
// mail has none.
type figure struct {
	german, english string
	value           func(*Page) string
}

// figures are the lines, in their order.
var figures = []figure{
	{"Projekt", "Project", func(p *Page) string { return p.Project }},
	{"Abteilung", "Department", func(p *Page) string { return p.Department }},
	{"Namespace", "Namespace", func(p *Page) string {
		if p.Namespace == p.Project {
			return ""
		}
		return p.Namespace
	}},
	{"Workload", "Workload", func(p *Page) string {
		if p.Renewal || strings.HasPrefix(p.Workload, "Project ") || strings.HasPrefix(p.Workload, "Department ") {
			return ""
		}
		return p.Workload
	}},
	text("Typ", "Type", InputType),
	text("Gestartet von", "Started by", InputCreatedBy),
	text("Beantragt von", "Asked by", InputAskedBy),
	length("Beantragte Zeit", "Time asked for", InputBy),
	text("Begründung", "Reason given", InputReason),
	text("Entschieden von", "Decided by", InputDecidedBy),
	text("Nachricht dazu", "Their message", InputMessage),
	{"Zeitlimit", "Time limit", func(p *Page) string {
		if l := p.Long[InputLimit]; l != nil {
			return l.Text
		}
		return ""
	}},
	length("Bisher gelaufen", "Has run for", InputAccumulatedSeconds),
	length("Stopp bei Leerlauf nach", "Stopped when idle for", InputIdleTimeout),
	text("GPUs", "GPUs", InputGPUs),
	text("Knotengruppe", "Node pool", InputNodePool),
	text("Knoten", "Node", InputNode),
	text("GPU", "GPU", InputGPU),
	mebibytes("Belegter GPU-Speicher", "GPU memory in use", InputMemoryMiB),
	mebibytes("Zustehender GPU-Speicher", "GPU memory allowed", InputShareMiB),
	{"GPUs belegt", "GPUs in use", func(p *Page) string {
		if p.In[InputAllocated] == "" || p.In[InputLimit] == "" {
			return ""
		}
		return fmt.Sprintf("%s / %s", p.In[InputAllocated], p.In[InputLimit])
	}},
	moment("Wieder möglich ab", "May start again from", InputUntil),
	moment("Neues Ende", "New end", InputNewEnd),
	moment("Abgelaufen seit", "Expired since", InputExpiredAt),
	moment("Laufendes wird gestoppt", "Running work stops", InputSuspendAt),
	moment("Löschung steht an ab", "Deletion may follow from", InputDeleteAt),
	text("Laufende Workloads", "Workloads running", InputRunning),
	text("Gestoppte Workloads", "Workloads stopped", InputStopped),
	text("Davon wegen Leerlaufs", "Of these for idleness", InputStoppedIdle),
	text("Verlängert von", "Renewed by", InputRenewedBy),
	moment("Gelöscht", "Deleted", InputDeletedAt),
	text("Genehmigt von", "Approved by", InputApprovedBy),
	text("Entfernt", "Taken away", InputRemoved),
	text("Erhalten geblieben", "Left in place", InputKept),
	text("Offene Anträge", "Extensions to decide", InputWaiting),
	{"GPU-Stunden", "GPU hours", func(p *Page) string {
		switch until := p.At[InputMonthUntil]; {
		case p.Month == "" || p.Hours == "":
			return p.Hours
		case until == nil:
			return fmt.Sprintf("%s (%s)", p.Hours, p.Month)
		default:
			return fmt.Sprintf("%s (%s, %s)", p.Hours, p.Month, fmt.Sprintf(p.Words.Until, until.Local))
		}
	}},
	{"GPU-Stunden der Vorwoche", "GPU hours the week before", func(p *Page) string {
		if p.Month != "" {
			return ""
		}
		return p.hours(p.In[InputGPUHoursBefore])
	}},
	{"GPU-Stunden im Monat davor", "GPU hours the month before", func(p *Page) string {
		if p.Month == "" {
			return ""
		}
		return p.hours(p.In[InputGPUHoursBefore])
	}},
}

func text(german, english, key string) figure {
	return figure{german, english, func(p *Page) string { return p.In[key] }}
}

func length(german, english, key string) figure {
	return figure{german, english, func(p *Page) string {
		if l := p.Long[key]; l != nil {
			return l.Text
		}
		return ""
	}}
}

func moment(german, english, key string) figure {
	return figure{german, english, func(p *Page) string {
		if m := p.At[key]; m != nil {
			return m.Local
		}
		return ""
	}}
}

func mebibytes(german, english, key string) figure {
	return figure{german, english, func(p *Page) string { return p.gibibytes(key) }}
}

// gibibytes is an amount of memory as people compare it.
func (p *Page) gibibytes(key string) string {
	mib, err := strconv.ParseFloat(p.In[key], 64)
	if err != nil || !amount.MatchString(p.In[key]) { // NaN and 1e300 are numbers, too
		return p.In[key]
	}
	return p.decimal(strconv.FormatFloat(mib/1024, 'f', 1, 64)) + " GiB"
}

// thousandths are how a quantity counts parts of a GPU.
var thousandths = regexp.MustCompile(`^[0-9]{1,9}m$`)

// countsGPUs tells the inputs that are quantities of GPUs.
func (p *Page) countsGPUs(key string) bool {
	return key == InputGPUs || key == InputAllocated || key == InputLimit && p.Kind == string(v1alpha1.NoticeQuotaThreshold)
}

// whole is a quantity of GPUs as people count: 3600m are 3.6. Other texts stay as
// they are.
func (p *Page) whole(s string) string {
	if !thousandths.MatchString(s) {
		return s
	}
	n, err := strconv.ParseInt(s[:len(s)-1], 10, 64)
	if err != nil {
		return s
	}
	return p.decimal(strconv.FormatFloat(float64(n)/1000, 'f', -1, 64))
}

// decimal has the language's mark.
func (p *Page) decimal(s string) string {
	if p.Language == string(v1alpha1.LanguageGerman) {
		return strings.Replace(s, ".", ",", 1)
	}
	return s
}

// facts are the lines that have a value.
func facts(p *Page) (all []Fact) {
	widest := 0
	for _, f := range figures {
		value := f.value(p)
		if value == "" {
			continue
		}
		label := f.english
		if p.Language == string(v1alpha1.LanguageGerman) {
			label = f.german
		}
		all = append(all, Fact{Label: label, Value: value})
		widest = max(widest, utf8.RuneCountInString(label))
	}
	for i := range all {
		all[i].Padded = all[i].Label + ":" + strings.Repeat(" ", widest-utf8.RuneCountInString(all[i].Label))
	}
	return all
}
