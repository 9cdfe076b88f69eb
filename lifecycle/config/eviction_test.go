// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"

	"sluice.dev/api/config"
)

func TestEvictionPeriods(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 5 * time.Minute, "eviction: {noticePeriod: 10s}": 10 * time.Second} {
		var c Config
		if err := config.Parse([]byte(configHeader+text), &c); err != nil || c.Eviction.NoticePeriod.Duration != want {
			t.Errorf("%q: %s, %v; want %s", text, c.Eviction.NoticePeriod.Duration, err, want)
		}
	}
	for _, field := range []string{"noticePeriod", "budgetPeriod"} {
		for _, value := range []string{"1s", "-5m", "25h", "soon"} {
			var c Config
			err := config.Parse([]byte(configHeader+"eviction: {"+field+": "+value+"}"), &c)
			if err == nil || value != "soon" && !strings.Contains(err.Error(), "eviction."+field) {
				t.Errorf("%s %s: %v", field, value, err)
			}
		}
	}
}
