// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package preemption

import (
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

// Reservation is a place on a node that is kept for a claimant. It is an annotation of the GPUNode, so that a
// restarted planner does not choose further victims.
type Reservation struct {
	Claimant types.UID           `json:"claimant"`
	GPU      v1alpha1.GPUUUID    `json:"gpu"`
	Profile  v1alpha1.MIGProfile `json:"profile"`
	Start    int                 `json:"start"`
	// Since is when the place was chosen, in machine time.
	Since time.Time `json:"since"`
}

// maxReservationBytes bounds the annotation.
const maxReservationBytes = 1024

// ParseReservation returns the reservation of an annotation, and false if it has none that can be read.
func ParseReservation(text string) (r Reservation, ok bool) {
	if text == "" || len(text) > maxReservationBytes || json.Unmarshal([]byte(text), &r) != nil {
		return Reservation{}, false
	}
	return r, r.Claimant != "" && r.GPU != "" && r.Start >= 0 && r.Start < 8 && !r.Since.IsZero()
}

// String returns the value of the annotation.
func (r *Reservation) String() string {
	body, err := json.Marshal(r)
	if err != nil { // a year beyond 9999
		return ""
	}
	return string(body)
}
