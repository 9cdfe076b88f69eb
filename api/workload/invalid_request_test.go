// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/workload"
)

func TestInvalidRequestWithPrefix(t *testing.T) {
	_, err := workload.Parse(newPod().withAnnotation("gpu-fraction", "1.7").withLimit("nvidia.com/gpu", "-1").PodTemplateSpec)
	var malformed workload.InvalidRequest
	if !errors.As(err, &malformed) {
		t.Fatal(err)
	}
	moved := malformed.WithPrefix("spec.jobTemplate.spec.template")
	for i, want := range []string{
		"spec.jobTemplate.spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]",
		"spec.jobTemplate.spec.template.metadata.annotations[gpu-fraction]",
	} {
		if moved[i].Field != want {
			t.Errorf("field %d is %s, want %s", i, moved[i].Field, want)
		}
		if malformed[i].Field == want {
			t.Error("the error itself was changed")
		}
	}
	var one *field.Error
	if !errors.As(err, &one) || one != malformed[0] {
		t.Errorf("errors.As finds %v, want the first entry", one)
	}
}

func TestInvalidRequestErrorIsBounded(t *testing.T) {
	p := newPod()
	for i := range 500 {
		p = p.withContainer("c"+strconv.Itoa(i)).withLimit("nvidia.com/mig-nothing", "1")
	}
	_, err := workload.Parse(p.withAnnotation("gpu-fraction", strings.Repeat("ä", 1<<16)).PodTemplateSpec)
	if err == nil || !strings.HasSuffix(err.Error(), "; and 491 more") || len(err.Error()) > 4000 {
		t.Errorf("an error of %d bytes: %.300s", len(err.Error()), err)
	}
	var malformed workload.InvalidRequest
	if errors.As(err, &malformed); len(malformed) != 501 {
		t.Fatalf("%d entries, want all 501", len(malformed))
	}
	if value, _ := malformed[500].BadValue.(string); len(value) > 80 || !utf8.ValidString(value) {
		t.Errorf("the value is shown as %q", value)
	}
}

func TestParseRejectsNil(t *testing.T) {
	for what, parse := range map[string]func() (workload.Request, error){
		"template": func() (workload.Request, error) { return workload.Parse(nil) },
		"pod":      func() (workload.Request, error) { return workload.ParsePod(nil) },
	} {
		_, err := parse()
		var malformed workload.InvalidRequest
		if !errors.As(err, &malformed) || err.Error() != what+": Required value: must not be nil" {
			t.Errorf("no %s: %v", what, err)
		}
	}
}
