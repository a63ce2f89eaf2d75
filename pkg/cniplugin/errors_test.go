package cniplugin

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
)

func TestWrapKeepsTheCode(t *testing.T) {
	again := Error(types.ErrTryAgainLater, "%d of %d held", 3, 3)
	for name, test := range map[string]struct {
		err  error
		want coded
	}{
		"nil stays nil":          {nil, coded{}},
		"with a code":            {again, coded{11, "read pool: 3 of 3 held"}},
		"with a code, wrapped":   {Wrap(again, "allocate"), coded{11, "read pool: allocate: 3 of 3 held"}},
		"with none is internal":  {errors.New("disk full"), coded{999, "read pool: disk full"}},
		"of the configuration":   {ConfigError("mtu", 5, "must be more"), coded{7, `read pool: invalid "mtu": 5: must be more`}},
		"of the environment":     {EnvError("CNI_ARGS", "x", "must be more"), coded{4, `read pool: invalid CNI_ARGS: "x": must be more`}},
		"of the plugin's own":    {Error(CodeDiffers, "MTU"), coded{100, "read pool: MTU"}},
		"with a string as value": {ConfigError("mode", "x", "must be y"), coded{7, `read pool: invalid "mode": "x": must be y`}},
	} {
		t.Run(name, func(t *testing.T) {
			err := Wrap(test.err, "read pool")
			if test.err == nil && err != nil {
				t.Fatalf("Wrap(nil) = %v", err)
			}
			if diff := cmp.Diff(test.want, code(t, err)); diff != "" {
				t.Errorf("Wrap() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWrapKeepsTheDetails(t *testing.T) {
	err := Wrap(types.NewError(types.ErrIOFailure, "write", "on /run"), "save")
	want := types.NewError(types.ErrIOFailure, "save: write", "on /run")
	if diff := cmp.Diff(error(want), err); diff != "" {
		t.Errorf("Wrap() (-want +got):\n%s", diff)
	}
}

func TestJoinHasTheFirstCodeAndAllMessages(t *testing.T) {
	plain, io, env := errors.New("plain"), Error(types.ErrIOFailure, "io"), Error(types.ErrInvalidEnvironmentVariables, "env")
	for name, test := range map[string]struct {
		errs []error
		want coded
	}{
		"none":               {nil, coded{}},
		"nil alone":          {[]error{nil, nil}, coded{}},
		"one":                {[]error{nil, io, nil}, coded{5, "io"}},
		"two codes":          {[]error{io, env}, coded{5, "io; env"}},
		"a code behind none": {[]error{plain, env, io}, coded{4, "plain; env; io"}},
		"no code is internal": {
			[]error{plain, fmt.Errorf("other: %w", plain)}, coded{999, "plain; other: plain"},
		},
		"a wrapped code": {[]error{fmt.Errorf("save: %w", io)}, coded{5, "save: io"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := Join(test.errs...)
			if test.want == (coded{}) && err != nil {
				t.Fatalf("Join() = %v, want nil", err)
			}
			if diff := cmp.Diff(test.want, code(t, err)); diff != "" {
				t.Errorf("Join() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUndoTakesBackTheLastThingFirstAndGoesOn(t *testing.T) {
	var order []string
	var undo Undo
	boom := errors.New("boom")
	for _, what := range []string{"create", "allocate", "configure", "save"} {
		undo.Push(what, func() error {
			order = append(order, what)
			if what == "allocate" || what == "save" {
				return boom
			}
			return nil
		})
	}
	err := undo.Run()
	if want := []string{"save", "configure", "allocate", "create"}; !slices.Equal(order, want) {
		t.Errorf("taken back: %v, want %v", order, want)
	}
	if want := "undo save: boom\nundo allocate: boom"; err == nil || err.Error() != want || !errors.Is(err, boom) {
		t.Errorf("Run() = %v, want %q", err, want)
	}
	if err := undo.Run(); err != nil || len(order) != 4 {
		t.Errorf("run again: %v, %v, want nothing to be taken back twice", order, err)
	}
}

func TestUndoOfNothing(t *testing.T) {
	var undo Undo
	if err := undo.Run(); err != nil {
		t.Errorf("Run() = %v", err)
	}
}
