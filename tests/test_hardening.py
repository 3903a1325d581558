"""What once ended, froze or slowed a gateway, and the tests that keep each of it from coming back.

The table is for readers. The test below keeps it true: a test that is renamed or removed must be renamed here too.
"""

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PROVED_BY: Mapping[str, tuple[str, ...]] = {
    "a malformed notification, or a server that refuses to unsubscribe, ends the process": (
        "gateway/test_access.py::test_a_malformed_notification_of_a_server_ends_nothing",
        "gateway/test_access.py::test_a_client_that_leaves_while_its_server_refuses_to_unsubscribe_ends_nothing",
    ),
    "answers over HTTP wait 40 ms for Nagle's algorithm": (
        "cli/test_listening.py::test_accepted_connections_send_their_answers_without_delay",
    ),
    "calls and searches block the event loop, longer with every tool": (
        "gateway/test_cost.py::test_what_a_request_costs_the_event_loop_does_not_depend_on_how_many_tools_there_are",
    ),
    "a JSON schema, or a query in a large result, blocks everybody": (
        "test_validation.py::test_a_pattern_bomb_is_answered_in_linear_time",
        "test_validation.py::test_pattern_properties_are_checked_by_the_same_engine",
        "test_validation.py::test_heavy_schemas_are_checked_in_linear_time",
        "test_validation.py::test_what_takes_long_is_checked_in_a_process_that_is_killed_when_its_time_is_over",
        "gateway/test_results.py::test_a_large_result_is_cut_and_searched_in_a_worker_process",
    ),
    "compressed answers, kept results and log messages take memory without bound": (
        "upstream/test_faults.py::test_the_limit_of_a_message_counts_decoded_bytes_of_any_content_type",
        "upstream/test_bodies.py::test_a_bomb_of_any_encoding_is_refused_and_unpacked_in_small_pieces",
        "upstream/test_bodies.py::test_what_follows_the_end_of_a_compressed_body_is_not_kept",
        "upstream/test_bodies.py::test_the_body_of_a_redirect_is_not_read",
        "upstream/test_bodies.py::test_answers_that_carry_nothing_are_not_read",
        "gateway/test_results.py::test_kept_results_are_bounded_in_bytes_and_the_oldest_go_first",
        "gateway/test_limits.py::test_kept_results_and_resumable_streams_together_take_128_mebibytes_at_most",
        "upstream/test_faults.py::test_a_storm_of_log_messages_is_cut_to_the_allowance_and_counted",
    ),
    "half-open requests stop the others; SIGTERM does not end a process that computes": (
        "gateway/test_limits.py::test_half_open_requests_leave_the_others_served_and_are_ended",
        "gateway/test_limits.py::test_a_client_that_does_not_finish_its_headers_is_disconnected",
        "cli/test_process.py::test_sigterm_ends_a_process_whose_thread_still_computes",
    ),
    "memory grows with every call; garbage collections stop the loop": (
        "gateway/test_resumption.py::test_events_weigh_the_bytes_that_they_take_numbers_included",
        "gateway/test_resumption.py::test_what_an_ended_session_was_sent_is_forgotten",
        "cli/test_process.py::test_what_a_gateway_loads_at_its_start_is_left_out_of_garbage_collection",
        "gateway/test_cost.py::test_a_request_leaves_nothing_to_the_garbage_collector",
        "test_validation.py::test_the_first_check_imports_the_validator_beside_the_event_loop",
        "cli/test_pauses.py::test_freed_memory_is_returned_though_something_behind_it_is_still_used",
        "cli/test_pauses.py::test_a_collection_walks_nothing_that_outlived_the_young_generations",
        "cli/test_pauses.py::test_garbage_that_was_frozen_is_collected_when_nobody_waits_or_when_it_is_far_too_much",
        "gateway/test_legacy_calls.py::test_a_call_that_was_watched_is_freed_without_the_garbage_collector",
    ),
    "a regular expression reads a hostile text again from every place, with the interpreter's lock held": (
        "test_patterns.py::test_no_pattern_reads_a_text_again_from_every_place",
    ),
    "an answer over 1 MiB does not reach a legacy client of the SDK": (
        "gateway/test_legacy_calls.py::test_a_legacy_client_of_the_sdk_reads_an_answer_that_is_too_large_for_an_event",
    ),
    "one failed answer fails the other calls of its server, and back-off hides a server that is up again": (
        "upstream/test_faults.py::test_a_failed_http_answer_fails_its_own_call_alone_and_is_not_repeated",
        "upstream/test_faults.py::test_connections_that_the_server_closes_between_calls_cost_no_call",
        "upstream/test_faults.py::test_a_call_does_not_wait_for_the_back_off_of_a_server_that_is_up_again",
        "upstream/test_faults.py::test_a_process_that_died_is_started_by_the_next_call",
        "upstream/test_faults.py::test_a_server_that_does_not_answer_a_cancellation_is_called_all_the_same",
    ),
    "a damaged or foreign state file, or a clock at 1970, ends the process or its retention": (
        "storage/test_damaged_files.py::test_a_damaged_file_ends_nothing_is_reported_and_is_not_overwritten",
        "storage/test_damaged_files.py::test_a_folder_that_cannot_be_used_ends_nothing",
        "storage/test_running_state.py::test_no_damage_to_any_of_its_files_ends_a_running_gateway_or_the_next_start",
        "index/test_mapped.py::test_an_index_that_is_truncated_or_overwritten_while_mapped_answers_as_before",
        "storage/test_damaged_files.py::test_tools_are_found_while_the_vectors_cannot_be_opened",
        "storage/test_damaged_files.py::test_a_gateway_that_started_with_an_unset_clock_keeps_its_retention",
        "index/test_cache.py::test_a_vector_of_the_wrong_size_is_computed_again",
    ),
    "SIGTERM leaves legacy calls unanswered": (
        "cli/test_shutdown.py::test_calls_that_are_running_at_a_signal_are_answered",
    ),
    "calls that outlast the grace period at SIGTERM end without a reason, and calls as tasks escape every limit": (
        "cli/test_shutdown.py::test_calls_that_outlast_the_grace_period_are_told_that_the_gateway_shuts_down",
        "cli/test_shutdown.py::test_a_call_over_stdio_that_outlasts_the_grace_period_is_told_too",
        "cli/test_shutdown.py::test_a_gateway_ends_while_a_server_waits_for_a_login",
        "gateway/test_limits.py::test_a_call_as_a_task_counts_as_a_call",
    ),
    "nothing is served while the disk is full, and nobody is told": (
        "cli/test_degraded.py::test_tools_are_served_while_nothing_can_be_saved_and_the_metrics_say_so",
        "telemetry/test_recorder.py::test_what_waits_for_a_store_that_failed_is_written_at_the_end_if_the_store_can",
        "cli/test_degraded.py::test_status_and_doctor_say_that_nothing_can_be_saved",
        "cli/test_degraded.py::test_status_and_doctor_say_that_approvals_cannot_be_read",
        "cli/test_tokens.py::test_a_gateway_gets_a_token_though_it_cannot_be_saved",
        "access/test_tokens.py::test_tokens_are_followed_while_their_use_cannot_be_noted",
        "access/test_tokens.py::test_a_folder_that_cannot_be_written_is_an_error_of_the_store",
        "trust/test_keeping.py::test_a_disk_that_is_full_at_times_changes_no_decision_and_nothing_is_lost",
        "trust/test_keeping.py::test_what_cannot_be_saved_is_reported_and_a_change_of_it_is_held_all_the_same",
        "trust/test_keeping.py::test_pins_in_a_folder_that_may_not_be_entered_are_unknown_and_not_none",
    ),
    "a schema compiles patterns or follows anchors on the event loop, or keeps the worker for itself": (
        "test_validation.py::test_what_may_take_long_is_not_done_on_the_event_loop",
        "test_validation.py::test_a_check_on_the_event_loop_ends_after_a_moment_however_few_steps_it_took",
        "test_validation.py::test_a_schema_whose_check_did_not_end_is_not_tried_again_at_once",
        "gateway/test_slow_checks.py::test_a_schema_that_takes_long_to_check_does_not_delay_calls_of_other_servers",
        "test_workers.py::test_slow_work_keeps_nobody_waiting_neither_its_own_server_nor_its_own_caller",
        "test_workers.py::test_slow_work_that_finds_no_slow_place_ends_as_soon_as_somebody_else_waits",
        "test_workers.py::test_nobody_has_two_quick_places_and_all_take_turns",
        "test_workers.py::test_there_are_never_more_processes_than_places_and_two_are_kept",
        "test_workers.py::test_a_process_that_needs_too_much_memory_fails_and_the_next_one_works",
        "test_workers.py::test_whoever_waits_in_vain_is_told_that_others_were_working",
    ),
    "a definition of 10 MB takes a third of a second in one step, and a long one is rendered on the event loop": (
        "gateway/test_cost.py::test_long_definitions_are_rendered_beside_the_event_loop",
        "catalog/test_readers.py::test_a_definition_that_is_far_too_long_is_left_out_before_it_is_encoded",
        "upstream/test_listing.py::test_other_work_runs_while_a_long_list_is_read",
    ),
    "a probe waits behind thousands of connections": (
        "cli/test_listening.py::test_the_loop_accepts_several_connections_in_one_pass",
    ),
    "a clock that jumps makes a search wait for years, loses requests to restart, or deletes what is to be kept": (
        "gateway/test_late_servers.py::test_a_search_does_not_wait_for_years_after_the_clock_was_set_back",
        "cli/test_secrets.py::test_a_new_value_restarts_the_servers_that_use_it",
        "telemetry/test_recorder.py::test_nothing_is_deleted_by_a_clock_that_cannot_be_right",
        "telemetry/test_recorder.py::test_a_clock_that_jumps_ahead_for_a_moment_costs_a_day_at_most",
        "storage/test_contract.py::"
        "test_a_workspace_that_was_used_by_a_clock_that_was_ahead_does_not_displace_those_that_are_used_now",
    ),
    "a gateway without free descriptors spins and floods its log": (
        "cli/test_process.py::test_a_gateway_without_free_descriptors_neither_spins_nor_floods_its_log",
        "gateway/test_limits.py::test_connections_leave_descriptors_for_servers_and_files",
    ),
    "calls of clients that vanished keep others waiting": (
        "gateway/test_limits.py::test_the_call_of_a_legacy_client_that_vanished_is_cancelled",
        "gateway/test_legacy_calls.py::test_the_call_of_a_client_that_does_not_come_back_is_cancelled",
    ),
    "telling a thousand idle sessions of a change stalls calls": (
        "gateway/test_access.py::test_a_thousand_clients_are_told_of_a_change_a_few_at_a_time",
    ),
    "the vector cache is never pruned": (
        "index/test_cache.py::test_vectors_that_were_not_used_for_long_go",
        "index/test_cache.py::test_vectors_beyond_the_size_go_the_least_recently_used_first",
    ),
    "a session that only makes calls ends as idle in the middle of its work": (
        "gateway/test_legacy_calls.py::test_a_session_is_not_idle_while_its_call_runs_nor_right_after_it",
    ),
    "ids of sessions that were never open are remembered for ever": (
        "gateway/test_legacy_calls.py::test_ids_of_sessions_that_are_not_open_are_not_remembered",
    ),
    "one caller takes the places of all: sessions, connections, calls, half-open requests, kept events and logins": (
        "test_fairness.py::test_an_entry_gives_way_only_to_a_caller_that_will_have_no_more_than_its_owner",
        "test_fairness.py::test_sessions_of_one_caller_displace_its_own",
        "test_fairness.py::test_connections_of_one_caller_displace_its_own",
        "test_fairness.py::test_calls_that_wait_for_one_caller_leave_places_to_the_others",
        "test_fairness.py::test_requests_that_one_caller_does_not_complete_leave_places_to_the_others",
        "test_fairness.py::test_what_one_caller_was_sent_leaves_others_able_to_resume",
        "test_fairness.py::test_logins_that_one_principal_does_not_finish_displace_its_own",
    ),
    "connections that send nothing keep everybody else out, probes too": (
        "gateway/test_limits.py::test_a_connection_beyond_the_limit_takes_the_place_of_one_that_never_made_a_request",
        "gateway/test_limits.py::test_while_every_connection_has_a_request_probes_are_answered_and_others_refused",
        "test_fairness.py::test_requests_that_one_caller_does_not_complete_leave_places_to_the_others",
    ),
    "responses that clients do not read take memory without bound, and their connections stay for ever": (
        "gateway/test_limits.py::test_what_clients_leave_unread_is_bounded_and_the_one_that_reads_is_served",
        "gateway/test_limits.py::test_a_client_that_takes_nothing_of_a_response_is_disconnected_in_time",
        "gateway/test_stdio.py::test_a_client_that_leaves_too_many_bytes_unread_is_disconnected",
    ),
    "what a server sends after a response is taken for the answer to the next call on that connection": (
        "upstream/test_faults.py::test_what_a_server_sends_after_a_response_reaches_no_other_call",
        "upstream/test_connections.py::test_a_connection_on_which_more_came_is_not_used_again",
    ),
    "a server sends `100 Continue` for ever, ends events with a carriage return, or closes its stdin and lives on": (
        "upstream/test_faults.py::test_a_server_that_sends_interim_responses_without_end_fails_its_own_call_alone",
        "upstream/test_bodies.py::test_interim_responses_are_counted_however_they_come_and_anew_for_each_request",
        "upstream/test_framing.py::test_an_event_is_complete_with_its_last_line_end_whatever_comes_after_it",
        "upstream/test_faults.py::test_a_process_that_closes_its_stdin_and_lives_on_is_started_anew",
    ),
    "a server sends chunks of a byte or events of millions of lines, and takes the event loop from everybody": (
        "upstream/test_bodies.py::test_chunks_of_a_body_leave_the_event_loop_to_others_and_tiny_ones_wait",
        "upstream/test_framing.py::test_an_event_of_millions_of_short_lines_is_too_large",
        "upstream/test_faults.py::test_a_hostile_response_fails_its_own_call_with_a_reason",
    ),
    "hundreds of requests that arrive together keep /healthz waiting until all of them have begun": (
        "gateway/test_turns.py::test_a_few_requests_begin_in_each_pass_of_the_loop_and_callers_take_turns",
        "gateway/test_turns.py::test_requests_to_the_endpoint_wait_for_their_turn_before_their_bodies_are_read",
    ),
    "the last message of each idle server stays in memory, up to 32 MiB": (
        "upstream/test_framing.py::test_a_channel_keeps_no_message_while_it_waits_for_the_next_one",
    ),
    "a server that invents tools fills the store of pins without bound": (
        "trust/test_keeping.py::test_a_server_that_invents_names_is_held_back_and_forgets_no_pin",
        "trust/test_keeping.py::test_pins_of_a_server_that_is_trusted_blindly_are_dropped_beyond_their_bound",
    ),
    "one request with 20,000 headers freezes everybody, and headers or trailers take memory without bound": (
        "gateway/test_limits.py::test_a_request_with_a_large_head_is_refused_at_once_and_the_others_are_served",
        "gateway/test_limits.py::test_requests_that_follow_one_another_are_weighed_one_by_one",
        "gateway/test_limits.py::test_a_body_that_declares_too_many_bytes_is_refused_before_it_comes",
        "gateway/test_limits.py::test_a_request_with_two_hosts_or_two_tokens_is_refused",
        "gateway/test_limits.py::test_a_request_line_that_names_another_host_is_refused",
        "gateway/test_limits.py::test_requests_beyond_the_limit_of_a_connection_end_it_and_the_others_are_served",
    ),
    "answers to a server that reads none pile up, and its long errors and notifications freeze everybody": (
        "upstream/test_faults.py::test_requests_of_a_server_that_reads_no_answers_do_not_pile_up",
        "upstream/test_framing.py::test_a_long_error_is_cut_and_keeps_its_code",
        "upstream/test_framing.py::test_a_notification_over_its_limit_is_dropped_and_a_request_is_not",
    ),
    "a definition or a list of any size is read, scanned and indexed": (
        "catalog/test_readers.py::test_a_bad_tool_is_reported_and_the_rest_load",
        "upstream/test_listing.py::test_tools_beyond_the_size_of_a_list_are_left_out_and_reported",
        "upstream/test_listing.py::test_a_list_of_prompts_that_is_asked_for_ends_at_its_size",
        "gateway/test_router.py::test_a_session_has_so_many_subscriptions_and_may_give_one_up_for_another",
    ),
    "a call takes longer than the timeout of its server while a large answer is parsed or paged": (
        "upstream/test_faults.py::test_a_call_ends_in_its_time_though_its_answer_is_still_being_parsed",
        "gateway/test_large_messages.py::test_a_call_ends_in_its_time_though_its_result_cannot_be_paged",
        "test_large.py::test_work_that_nobody_waits_for_stops_after_the_piece_that_it_is_at",
    ),
    "a burst of refused calls renders a schema, and all of a long value, for each of them on the event loop": (
        "gateway/test_cost.py::test_a_burst_of_refused_calls_renders_the_schema_once",
        "test_validation.py::test_of_a_long_wrong_value_only_the_beginning_is_cleaned_and_shown",
    ),
    "calls that need a login at the same time start as many": (
        "cli/test_signing.py::test_calls_that_need_a_login_at_the_same_time_start_one",
        "upstream/test_login.py::test_principals_share_the_discovery_of_a_server_and_no_login",
        "upstream/test_login.py::test_a_discovery_that_fails_starts_no_login_of_anybody_and_is_tried_again_later",
    ),
    "one tool that is nested too deeply loses the whole list of its server": (
        "upstream/test_bad_servers.py::test_tools_that_are_nested_too_deeply_are_left_out_alone_and_status_names_them",
        "upstream/test_bad_servers.py::test_a_tool_as_deep_as_a_message_may_be_is_served",
        "upstream/test_framing.py::test_of_a_list_only_items_that_are_nested_too_deeply_are_left_out",
        "upstream/test_framing.py::test_a_message_that_is_hostile_as_a_whole_fails_its_request",
        "cli/test_serving.py::test_status_names_tools_that_were_left_out_and_why",
    ),
    "half an emoji, an event that cannot be read or a malformed question fails more than itself": (
        "upstream/test_framing.py::test_half_an_emoji_costs_itself_and_nothing_else",
        "gateway/test_limits.py::test_half_an_emoji_in_arguments_costs_itself_and_nothing_else",
        "upstream/test_faults.py::test_an_event_that_is_no_message_does_not_end_the_stream_of_the_others",
        "gateway/test_limits.py::test_questions_that_cannot_be_read_are_refused_with_the_name_of_the_server",
    ),
    "a storm of bad requests floods the log, and a stderr that nobody reads stops the process": (
        "telemetry/test_logs.py::test_a_storm_of_lines_from_one_place_is_cut_and_counted",
        "telemetry/test_logs.py::test_the_next_line_says_how_many_were_left_out",
        "telemetry/test_logs.py::test_a_full_stderr_that_nobody_reads_stops_nothing",
    ),
    "a server that floods stderr, stdout or its clients with requests slows the calls of others": (
        "upstream/test_pool.py::test_a_server_that_floods_its_stderr_is_slowed_and_its_last_lines_are_kept",
        "upstream/test_pool.py::test_a_line_on_stderr_without_an_end_is_slowed_as_well",
        "upstream/test_faults.py::test_a_server_that_asks_without_end_is_answered_at_a_bearable_pace",
    ),
    "a client that leaves with requests waiting logs a traceback, and its call goes on": (
        "gateway/test_limits.py::"
        "test_a_client_that_leaves_with_requests_waiting_cancels_the_one_that_runs_and_logs_nothing",
    ),
    "a message of many small values, or a stream of line ends, stops the loop for seconds": (
        "upstream/test_framing.py::test_an_answer_with_too_many_values_fails_its_request_and_is_not_parsed",
        "upstream/test_framing.py::test_lines_of_an_event_take_no_more_memory_than_their_bytes",
        "upstream/test_bodies.py::test_a_compressed_stream_of_line_ends_leaves_the_event_loop_to_others",
        "gateway/test_limits.py::test_a_body_with_too_many_values_is_refused_without_being_parsed",
    ),
    "one message of half a million values or ten megabytes, of a client or a server, stops the loop for 0.1 to 0.6 s": (
        "test_large.py::test_what_is_read_in_pieces_equals_what_is_read_at_once",
        "test_large.py::test_what_is_written_in_pieces_equals_what_is_written_at_once",
        "test_large.py::test_large_values_are_written_in_another_thread_and_small_ones_here",
        "upstream/test_framing.py::test_a_long_line_is_read_in_pieces_in_another_thread",
        "gateway/test_large_messages.py::test_a_large_call_over_http_is_parsed_and_answered_beside_the_event_loop",
        "gateway/test_large_messages.py::test_a_request_with_too_many_values_is_refused",
        "gateway/test_large_messages.py::test_arguments_are_sent_to_the_worker_as_bytes",
        "gateway/test_large_messages.py::test_large_structured_content_is_written_beside_the_event_loop",
        "gateway/test_large_messages.py::test_a_result_with_too_many_blocks_becomes_an_error",
        "gateway/test_large_messages.py::"
        "test_large_messages_to_and_from_a_server_over_http_are_handled_beside_the_event_loop",
        "upstream/test_faults.py::test_trusted_certificates_are_read_once_and_beside_the_event_loop",
    ),
    "an event id or a session id that is not ASCII ends the connection to its server": (
        "upstream/test_bodies.py::test_ids_that_a_server_chooses_go_back_as_they_came",
    ),
    "log messages of a server to many clients pile up and take the loop from every call": (
        "gateway/test_access.py::test_what_servers_announce_without_end_waits_within_bounds_and_changes_are_told_once",
    ),
    "a clock that is set back breaks the chain of the audit log": (
        "storage/test_audit.py::test_a_clock_that_is_set_back_leaves_every_chain_whole",
    ),
    "a start that was given up is taken for the next one, which then outlives its server": (
        "upstream/test_processes.py::test_a_start_that_was_given_up_is_not_taken_for_the_next_one",
    ),
    "cursors of 30 MB pile up while a list is read": (
        "upstream/test_bad_servers.py::test_a_long_cursor_ends_the_listing_because_all_of_them_are_kept",
        "upstream/test_bad_servers.py::test_cursors_count_as_what_a_list_of_prompts_may_take",
    ),
    "a client over stdio waits for ever for a request that cannot be parsed, or ends the gateway with a traceback": (
        "gateway/test_stdio.py::test_a_request_that_cannot_be_parsed_is_answered_too",
        "gateway/test_stdio.py::test_a_client_that_closes_its_end_of_stdout_ends_the_gateway_without_a_traceback",
    ),
    "kill -9 leaves processes, damages files or loses events that were written": (
        "cli/test_process.py::test_kill_9_leaves_no_process_and_no_damaged_file_whenever_it_comes",
        "cli/test_process.py::test_kill_9_loses_only_events_of_the_last_moment",
        "upstream/test_processes.py::test_nothing_outlives_a_gateway_that_was_killed",
        "telemetry/test_recorder.py::test_an_unexpected_failure_does_not_end_the_recording",
        "telemetry/test_recorder.py::test_kill_9_in_the_middle_of_writing_loses_what_was_not_flushed_and_corrupts_nothing",
    ),
}


@cache
def functions_of(file: str) -> frozenset[str]:
    nodes = ast.parse((TESTS / file).read_text("utf-8")).body
    return frozenset(node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


@pytest.mark.parametrize("fault", PROVED_BY)
def test_every_fault_that_was_ever_found_has_tests(fault: str) -> None:
    named = {tuple(proof.split("::")) for proof in PROVED_BY[fault]}
    assert named
    assert all(test in functions_of(file) for file, test in named), fault
