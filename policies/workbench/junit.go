// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// WriteJUnit writes outcomes in the XML format of JUnit, which the servers of continuous integration read
// (https://github.com/testmoapp/junitxml).
func WriteJUnit(output io.Writer, outcomes []Outcome) error {
	var report junitReport
	for i := range outcomes {
		o := &outcomes[i]
		if len(report.Suites) == 0 || report.Suites[len(report.Suites)-1].Name != o.File {
			report.Suites = append(report.Suites, junitSuite{Name: o.File})
		}
		suite := &report.Suites[len(report.Suites)-1]
		test := junitTest{Class: o.File, Name: o.Name, Seconds: fmt.Sprintf("%.6f", o.Duration.Seconds())}
		suite.Tests++
		if o.Skipped {
			test.Skipped = &struct{}{}
			suite.Skipped++
		}
		if len(o.Failures) > 0 {
			suite.Failures++
			test.Failure = &junitFailure{Message: o.Failures[0].Message, Text: failureText(o.Failures)}
		}
		suite.Cases = append(suite.Cases, test)
	}
	if _, err := io.WriteString(output, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(output)
	encoder.Indent("", "  ")
	return encoder.Encode(report)
}

func failureText(failures []Failure) string {
	var text strings.Builder
	for _, failure := range failures {
		text.WriteString(failure.Message + "\n" + failure.Diff)
	}
	return text.String()
}

type junitReport struct {
	XMLName xml.Name     `xml:"testsuites"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitTest `xml:"testcase"`
}

type junitTest struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Seconds string        `xml:"time,attr"`
	Failure *junitFailure `xml:"failure,omitempty"`
	Skipped *struct{}     `xml:"skipped,omitempty"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}
