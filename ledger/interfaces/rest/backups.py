"""Paths of backups. A backup takes as long as it takes: one request begins it, another asks how far it has come."""

from http import HTTPStatus

from fastapi import APIRouter, Depends

from ledger.core.errors import Busy, ChannelStopped, Conflict, Forbidden, NotFound, Refused
from ledger.interfaces.rest import models
from ledger.interfaces.rest.admin import admin_only
from ledger.interfaces.rest.asking import AskedChannel, problems
from ledger.interfaces.rest.ports import AdminAction, BackupStatus
from ledger.interfaces.rest.problems import Unauthenticated

router = APIRouter()

may_back_up = admin_only(AdminAction.BACKUP)


@router.post(
    "/v1/channels/{channel}/backup",
    tags=["backup"],
    summary="Begin a backup (admin)",
    status_code=HTTPStatus.ACCEPTED,
    dependencies=[Depends(may_back_up)],
    responses=problems(Unauthenticated, Forbidden, NotFound, Refused, Conflict, ChannelStopped, Busy),
)
async def begin_backup(asked: AskedChannel, wanted: models.BackupRequest) -> models.BackupAnswer:
    """Copy the channel's ledger, as of one committed block, to a folder of the peer's machine; commits go on.

    Durability: the backup is one once its state is `done`; before that its folder has another name.
    """
    return await asked.read(lambda: answer(asked.channel.start_backup(wanted.to)))


@router.get(
    "/v1/channels/{channel}/backup",
    tags=["backup"],
    summary="Say how far the backup has come (admin)",
    dependencies=[Depends(may_back_up)],
    responses=problems(Unauthenticated, Forbidden, NotFound, ChannelStopped, Busy),
)
async def show_backup(asked: AskedChannel) -> models.BackupAnswer:
    """The backup that is being made, or the last one since the peer started."""

    def read() -> models.BackupAnswer:
        status = asked.channel.backup_status()
        if status is None:
            raise NotFound(f"no backup of {asked.channel_id} was made since this peer started")
        return answer(status)

    return await asked.read(read)


def answer(status: BackupStatus) -> models.BackupAnswer:
    """Show how far a backup has come."""
    made = status.manifest
    return models.BackupAnswer(
        state=status.state.value,
        path=status.path,
        bytes_done=status.bytes_done,
        bytes_total=status.bytes_total,
        reason=status.reason,
        height=made.height if made is not None else None,
        prune_point=made.prune_point if made is not None else None,
        vblock_hash=made.vblock_hash if made is not None else None,
        state_hash=made.state_hash if made is not None else None,
        files=len(made.files) if made is not None else None,
    )
