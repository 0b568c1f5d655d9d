# Called by `make fuzz`: compiles all rooms anew with clang's fuzzer and sanitizers into fuzz-build/, then searches.
# New inputs that reach new code collect in fuzz-build/corpus/<what>; a crash leaves fuzz-build/crash/<what>-*.
dir = fuzz-build
flags = -std=gnu11 -O1 -g -fno-omit-frame-pointer -fno-sanitize-recover=all -w
sanitizers = address,undefined

vpath %.c $(top_srcdir) .
rooms = proto coordination broker client
# Generated sources lie in the build directory, all others in the source directory; both may be the same.
found := $(sort $(foreach top,$(top_srcdir) .,$(shell cd $(top) && find $(rooms) -name '*.c' 2>/dev/null)))
sources := $(filter-out %/main.c client/cli/% client/examples/%,$(found))
objects = $(sources:%.c=$(dir)/%.o)

search: $(FUZZ:%=search-%)

search-%: $(dir)/fuzz_%
	@mkdir -p $(dir)/corpus/$* $(dir)/crash
	$(dir)/fuzz_$* -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
		-artifact_prefix=$(dir)/crash/$*- $(dir)/corpus/$* $(top_srcdir)/tests/fuzz/corpus/$*

$(dir)/fuzz_%: $(dir)/tests/fuzz/fuzz_%.o $(dir)/rooms.a
	$(FUZZ_CC) -fsanitize=fuzzer,$(sanitizers) -pthread -o $@ $^ $(FUZZ_LIBS)

# Appended, not replaced: files of two rooms may have the same name.
$(dir)/rooms.a: $(objects)
	rm -f $@ && ar cqs $@ $^

$(dir)/%.o: %.c
	@mkdir -p $(@D)
	$(FUZZ_CC) $(FUZZ_CPPFLAGS) $(flags) -fsanitize=fuzzer-no-link,$(sanitizers) -MMD -MP -c -o $@ $<

.PHONY: search
.SECONDARY:
.DELETE_ON_ERROR:
-include $(objects:.o=.d) $(wildcard $(dir)/tests/fuzz/*.d)
