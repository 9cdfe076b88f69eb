// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"sluice.dev/api/v1alpha1"
)

// factRow is a row of the table of facts: its labels and its value; empty for no row.
type factRow struct {
	german, english string
	value           func(*TemplateData) string
}

// factRows holds the rows in order.
var factRows = []factRow{
	{"Projekt", "Project", func(p *TemplateData) string { return p.Project }},
	{"Abteilung", "Department", func(p *TemplateData) string { return p.Department }},
	{"Namespace", "Namespace", func(p *TemplateData) string {
		if p.Namespace == p.Project {
			return ""
		}
		return p.Namespace
	}},
	{"Workload", "Workload", func(p *TemplateData) string {
		if p.Renewal || strings.HasPrefix(p.Workload, "Project ") || strings.HasPrefix(p.Workload, "Department ") {
			return ""
		}
		return p.Workload
	}},
	textRow("CronJob", "CronJob", InputCronJob),
	textRow("Typ", "Type", InputType),
	textRow("Gestartet von", "Started by", InputCreatedBy),
	textRow("Beantragt von", "Requested by", InputRequestedBy),
	textRow("Im Namen von", "On behalf of", InputOnBehalfOf),
	durationRow("Beantragte Verlängerung", "Requested extension", InputExtendBy),
	textRow("Begründung", "Reason", InputReason),
	textRow("Entschieden von", "Decided by", InputDecidedBy),
	textRow("Nachricht", "Message", InputMessage),
	{"Zeitlimit", "Time limit", func(p *TemplateData) string {
		if l := p.Long[InputLimit]; l != nil {
			return l.Text
		}
		return ""
	}},
	durationRow("Bisherige Laufzeit", "Run time so far", InputAccumulatedSeconds),
	durationRow("Erlaubte Zeit ohne Nutzung", "Allowed idle time", InputIdleTimeout),
	textRow("GPUs", "GPUs", InputGPUs),
	textRow("Knotengruppe", "Node pool", InputNodePool),
	textRow("Pods", "Pods", InputPods),
	textRow("Knoten", "Node", InputNode),
	textRow("GPU", "GPU", InputGPU),
	memoryRow("Belegter GPU-Speicher", "GPU memory in use", InputMemoryMiB),
	memoryRow("Zugeteilter GPU-Speicher", "GPU memory allowed", InputShareMiB),
	{"GPUs belegt", "GPUs in use", func(p *TemplateData) string {
		if p.In[InputAllocated] == "" || p.In[InputLimit] == "" {
			return ""
		}
		return fmt.Sprintf("%s / %s", p.In[InputAllocated], p.In[InputLimit])
	}},
	{"Neustart möglich ab", "Can be restarted from", func(p *TemplateData) string {
		if p.In[InputCronJob] != "" || p.Kind == string(v1alpha1.NoticeProjectDeletion) {
			return ""
		}
		return p.localTimeInput(InputUntil)
	}},
	{"Ruht bis", "Suspended until", func(p *TemplateData) string {
		if p.Kind != string(v1alpha1.NoticeProjectDeletion) || p.At[InputExpiredAt] == nil {
			return ""
		}
		return p.localTimeInput(InputUntil)
	}},
	{"Nächster Lauf frühestens", "Next run at the earliest", func(p *TemplateData) string {
		if p.In[InputCronJob] == "" {
			return ""
		}
		return p.localTimeInput(InputUntil)
	}},
	timeRow("Neues Ende", "New end", InputNewEnd),
	{"Abgelaufen seit", "Expired since", func(p *TemplateData) string {
		if p.In[InputCause] == CauseUnconfirmed {
			return "" // it did not expire
		}
		return p.localTimeInput(InputExpiredAt)
	}},
	timeRow("Stopp der Workloads", "Workloads will be stopped", InputSuspendAt),
	timeRow("Löschung möglich ab", "Deletion possible from", InputDeleteAt),
	textRow("Laufende Workloads", "Workloads running", InputRunning),
	textRow("Gestoppte Workloads", "Workloads stopped", InputStopped),
	textRow("Davon ungenutzt", "Of these, idle", InputStoppedIdle),
	textRow("Verlängert von", "Renewed by", InputRenewedBy),
	timeRow("Gelöscht", "Deleted", InputDeletedAt),
	textRow("Genehmigt von", "Approved by", InputApprovedBy),
	textRow("Gelöschte Objekte", "Deleted objects", InputRemoved),
	textRow("Erhaltene Objekte", "Kept objects", InputKept),
	textRow("Offene Anträge", "Pending extensions", InputPendingExtensions),
	{"GPU-Stunden", "GPU hours", func(p *TemplateData) string {
		switch until := p.At[InputMonthUntil]; {
		case p.Month == "" || p.Hours == "":
			return p.Hours
		case until == nil:
			return fmt.Sprintf("%s (%s)", p.Hours, p.Month)
		default:
			return fmt.Sprintf("%s (%s, %s)", p.Hours, p.Month, fmt.Sprintf(p.Words.Until, until.Local))
		}
	}},
	{"GPU-Stunden der Vorwoche", "GPU hours the week before", func(p *TemplateData) string {
		if p.Month != "" {
			return ""
		}
		return p.formatHours(p.In[InputGPUHoursBefore])
	}},
	{"GPU-Stunden im Monat davor", "GPU hours the month before", func(p *TemplateData) string {
		if p.Month == "" {
			return ""
		}
		return p.formatHours(p.In[InputGPUHoursBefore])
	}},
}

func textRow(german, english, key string) factRow {
	return factRow{german, english, func(p *TemplateData) string { return p.In[key] }}
}

func durationRow(german, english, key string) factRow {
	return factRow{german, english, func(p *TemplateData) string {
		if l := p.Long[key]; l != nil {
			return l.Text
		}
		return ""
	}}
}

func timeRow(german, english, key string) factRow {
	return factRow{german, english, func(p *TemplateData) string { return p.localTimeInput(key) }}
}

// localTimeInput returns a time in the recipient's zone; empty if the Notice lacks it.
func (p *TemplateData) localTimeInput(key string) string {
	if m := p.At[key]; m != nil {
		return m.Local
	}
	return ""
}

func memoryRow(german, english, key string) factRow {
	return factRow{german, english, func(p *TemplateData) string { return p.formatMemory(key) }}
}

// formatMemory formats an amount of memory in GiB, or in MiB below one GiB.
func (p *TemplateData) formatMemory(key string) string {
	mib, err := strconv.ParseFloat(p.In[key], 64)
	if err != nil || !decimalPattern.MatchString(p.In[key]) { // NaN and 1e300 are numbers, too
		return p.In[key]
	}
	if mib < 1024 {
		return p.localizeDecimal(p.In[key]) + " MiB"
	}
	return p.localizeDecimal(strconv.FormatFloat(mib/1024, 'f', 1, 64)) + " GiB"
}

// milliQuantityPattern matches quantities in thousandths of a GPU.
var milliQuantityPattern = regexp.MustCompile(`^[0-9]{1,9}m$`)

// isGPUQuantity reports whether an input is a quantity of GPUs.
func (p *TemplateData) isGPUQuantity(key string) bool {
	return key == InputGPUs || key == InputAllocated || key == InputLimit && p.Kind == string(v1alpha1.NoticeQuotaThreshold)
}

// formatGPUQuantity formats a quantity of GPUs as a decimal: 3600m as 3.6. Other texts stay
// unchanged.
func (p *TemplateData) formatGPUQuantity(s string) string {
	if !milliQuantityPattern.MatchString(s) {
		return s
	}
	n, err := strconv.ParseInt(s[:len(s)-1], 10, 64)
	if err != nil {
		return s
	}
	return p.localizeDecimal(strconv.FormatFloat(float64(n)/1000, 'f', -1, 64))
}

// localizeDecimal applies the decimal separator of the language.
func (p *TemplateData) localizeDecimal(s string) string {
	if p.Language == string(v1alpha1.LanguageGerman) {
		return strings.Replace(s, ".", ",", 1)
	}
	return s
}

// renderFacts returns the rows with a value.
func renderFacts(p *TemplateData) (all []Fact) {
	widest := 0
	for _, f := range factRows {
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
