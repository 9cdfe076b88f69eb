// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func after(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

const (
	overQuota = `Error creating: pods "a" is forbidden: exceeded quota: sluice-dgx, requested: requests.sluice.dev/gpu-milli.dgx=500, used: x, limited: x`
	otherwise = `Error creating: pods "a" is forbidden: a policy says no`
)

// told is an event about an object, seen from first to last.
func told(kind, name, message string, first, last int) corev1.Event {
	return corev1.Event{
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Reason:         reasonFailedCreate, Message: message,
		FirstTimestamp: metav1.NewTime(after(first)), LastTimestamp: metav1.NewTime(after(last)),
	}
}

func TestLatest(t *testing.T) {
	newForm := told("Job", "new", overQuota, 0, 0)
	newForm.FirstTimestamp, newForm.LastTimestamp = metav1.Time{}, metav1.Time{}
	newForm.EventTime = metav1.NewMicroTime(after(5))
	newForm.Series = &corev1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(after(90))}
	another := told("Job", "a", overQuota, 0, 0)
	another.Reason = "SuccessfulCreate"
	tests := map[string]struct {
		events []corev1.Event
		want   []string
	}{
		"oldest first": {
			[]corev1.Event{told("Job", "young", overQuota, 50, 50), told("ReplicaSet", "old", overQuota, 1, 70)},
			[]string{"ReplicaSet old 1s..1m10s", "Job young 50s..50s"},
		},
		"several of one": {
			[]corev1.Event{told("Job", "a", overQuota, 9, 9), told("Job", "a", overQuota, 3, 3), told("Job", "a", overQuota, 20, 30)},
			[]string{"Job a 3s..30s"},
		},
		"refused for another reason since": {
			[]corev1.Event{told("Job", "a", otherwise, 20, 20), told("Job", "a", overQuota, 3, 3)}, nil,
		},
		"refused for another reason before": {
			[]corev1.Event{told("Job", "a", otherwise, 1, 2), told("Job", "a", overQuota, 3, 3)}, []string{"Job a 1s..3s"},
		},
		"both in one second":          {[]corev1.Event{told("Job", "a", overQuota, 3, 3), told("Job", "a", otherwise, 3, 3)}, []string{"Job a 3s..3s"}},
		"in the other form of events": {[]corev1.Event{newForm}, []string{"Job new 5s..1m30s"}},
		"long ago":                    {[]corev1.Event{told("Job", "a", overQuota, -3600, -1300)}, nil},
		"another event":               {[]corev1.Event{another}, nil},
		"a kind that nobody knows":    {[]corev1.Event{told("DaemonSet", "a", overQuota, 0, 0)}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range Latest(tc.events, after(100)) {
				got = append(got, r.Kind+" "+r.Name+" "+r.First.Sub(noon).String()+".."+r.Last.Sub(noon).String())
				if r.Quota != "sluice-dgx" || r.Share != 500 || r.Namespace != "ns" || r.UID != types.UID("uid-"+r.Name) {
					t.Errorf("refused = %+v", r)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
